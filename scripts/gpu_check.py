"""Proof on a real GPU, with no network: builds llama.cpp for CUDA, runs the tests marked `gpu`, prints one report.

On the machine with the GPU this needs Linux, an NVIDIA driver, CUDA's compiler (nvcc), cuBLAS (the toolkit's, or pip's
nvidia-cublas in the Python that runs this), a C++ compiler, Python 3.11 or newer with venv, this source tree, and a
folder of wheels. Nothing is fetched, and the GPU's settings stay as they are.

  prepare the folder   on any machine with pip and a network, for the other machine's Python:
                         scripts/gpu_check --prepare wheels --python-version 3.12
                       It holds some 30 MB: wheels for Linux on x86-64, and llama-cpp-python's source without its
                       history, documents and sample vocabularies. Where the other machine has no cmake and ninja, add
                       --with-cmake. By hand: `pip download` of the REQUIREMENTS in this file into one folder.
  carry                this source tree without .git and .venv, and the folder
  run there            scripts/gpu_check --wheels wheels
                       The build is for that GPU's architecture alone and is kept in --build: a second run reuses it.
                       --build-only stops after it, --only takes a part of the tests, as `--only "decode or maxctx"`.
  read                 report.txt and report.json in --report; --show prints a report.json again

Exit code: 0 where every test passed, 1 where one failed or was skipped, 2 where something is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.cuda_toolkit import CudaToolkit, find_toolkit  # noqa: E402 - found through the line above
from scripts.gpu_report import report_text  # noqa: E402

REQUIREMENTS = (
    "numpy", "psutil", "nvidia-ml-py", "click", "platformdirs", "msgspec", "rich", "diskcache", "jinja2",
    "typing-extensions", "pytest", "pytest-timeout", "scikit-build-core",
)  # fmt: skip
"""What ggbench's measuring, its tests and the build of llama-cpp-python need; the TUI and the Hub are left out."""
LLAMA = "llama-cpp-python"
PARTS = f"-DCMAKE_PROJECT_llama_cpp_INCLUDE={shlex.quote(str(ROOT / 'scripts/llama_parts.cmake'))}"
"""Leaves out of llama.cpp what ggbench does not use, as scripts/setup does."""
NOT_NEEDED = re.compile(
    r"[^/]+/(\.git|vendor/llama\.cpp/(\.devops|\.github|benches|docs|media|models|tests|tools/ui|gguf-py|examples))(/|$)"
)
"""Parts of llama-cpp-python's source that its build does not read."""
TEST_TIMEOUT_S = 1800


class Missing(Exception):
    """Something without which there is nothing to check: what, and what to do."""


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU as nvidia-smi reports it."""

    name: str
    uuid: str
    pci_bus_id: str
    driver: str
    compute_capability: str
    """As `8.9`."""
    memory: str

    @property
    def architecture(self) -> str:
        """CMake's name for code of this GPU alone: `89-real`."""
        return f"{self.compute_capability.replace('.', '')}-real"


DEVICE_QUERY = "name,uuid,pci.bus_id,driver_version,compute_cap,memory.total"


def main(words: Sequence[str] | None = None) -> int:
    """Do what the command line says; returns the exit code."""
    options = parse(words)
    try:
        if options.prepare:
            prepare(options.prepare, options.python_version, with_cmake=options.with_cmake)
            return 0
        if options.show:
            print(report_text(read_report(options.show)))
            return 0
        return check(options)
    except Missing as missing:
        print(f"Error: {missing.args[0]}\nHint: {missing.args[1]}", file=sys.stderr)
        return 2


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/gpu_check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wheels", type=Path, metavar="FOLDER", help="what --prepare made")
    parser.add_argument(
        "--build",
        type=Path,
        metavar="FOLDER",
        default=ROOT / ".gpu_check",
        help="kept between runs (default: .gpu_check)",
    )
    parser.add_argument(
        "--report", type=Path, metavar="FOLDER", help="for report.txt and report.json (default: --build)"
    )
    parser.add_argument("--only", metavar="EXPRESSION", help="tests to run, as pytest's -k takes them")
    parser.add_argument("--build-only", action="store_true", help="stop once llama.cpp is built and installed")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="compilers at once (default: one per core)"
    )
    parser.add_argument(
        "--prepare", type=Path, metavar="FOLDER", help="fill a folder of wheels; needs a network"
    )
    parser.add_argument("--python-version", default="3.12", help="of the machine with the GPU (default: 3.12)")
    parser.add_argument("--with-cmake", action="store_true", help="put cmake and ninja into the folder too")
    parser.add_argument("--show", type=Path, metavar="FILE", help="print a report.json again")
    options = parser.parse_args(words)
    if not (options.wheels or options.prepare or options.show):
        parser.error("one of --wheels, --prepare and --show is needed")
    return options


def check(options: argparse.Namespace) -> int:
    """Build, test and report on this machine. Raises Missing."""
    device, wheels = find_device(), options.wheels.resolve()
    build = options.build.resolve()
    report_folder = (options.report or build).resolve()
    for folder in (build, report_folder):
        folder.mkdir(parents=True, exist_ok=True)
    if not any(wheels.glob("*.whl")):
        raise Missing(f"no wheels in {wheels}", "make that folder with --prepare, on a machine with a network")
    toolkit = find_toolkit()
    if toolkit is None:
        raise Missing("there is no nvcc on PATH or in /usr/local/cuda/bin", "install the CUDA toolkit")
    python = make_venv(venv_folder(build), wheels)
    built = build_llama(python, device, toolkit, wheels, build, options.jobs)
    if options.build_only:
        return 0
    # A person's own libraries come first.
    libraries = [os.environ.get("LD_LIBRARY_PATH", ""), *toolkit.library_folders]
    # The workers that the tests start find ggbench there: to install it would take its build backend along.
    environ = {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries)), "PYTHONPATH": str(ROOT)}
    sections = {"device": {name: getattr(device, name) for name in Device.__slots__}, "build": built}
    return run_tests(python, "gpu", build / "twins", report_folder, options.only, environ, sections)


def run_tests(
    python: Path,
    marker: str,
    twins: Path,
    report_folder: Path,
    only: str | None,
    environ: Mapping[str, str],
    sections: Mapping[str, Mapping[str, object]],
) -> int:
    """Run the tests of a marker, write their report with these sections of facts, print it; returns the exit code."""
    pieces, results = report_folder / "pieces.jsonl", report_folder / "results.xml"
    for old in (pieces, results):
        old.unlink(missing_ok=True)
    command = [str(python), "-P", "-m", "pytest", "tests/gpu", "-m", marker, f"--timeout={TEST_TIMEOUT_S}"]
    command += [f"--junitxml={results}", "-p", "no:cacheprovider", "-rs", *(["-k", only] if only else [])]
    reported = {"GGBENCH_GPU_PIECES": str(pieces), "GGBENCH_GPU_TWINS": str(twins)}
    status = subprocess.run(command, cwd=ROOT, env={**os.environ, **environ, **reported}).returncode
    document: dict[str, Any] = {
        "schema": f"ggbench.{marker}_check/1",
        "taken_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {
            "cpu_count": os.cpu_count(),
            "os": platform.platform(),
            "python": platform.python_version(),
        },
        **sections,
        "pieces": read_pieces(pieces),
        "tests": read_results(results),
        "pytest_status": status,
    }
    (report_folder / "report.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    text = report_text(document)
    (report_folder / "report.txt").write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0 if status == 0 and has_passed(document["tests"]) else 1


def has_passed(results: Sequence[Mapping[str, object]]) -> bool:
    """Whether tests ran and every one passed: one that was skipped has proved nothing."""
    return bool(results) and all(result["outcome"] == "passed" for result in results)


def find_device() -> Device:
    """The first GPU that nvidia-smi lists. Raises Missing."""
    if shutil.which("nvidia-smi") is None:
        raise Missing(
            "there is no nvidia-smi on PATH", "this check is for a machine with an NVIDIA GPU and its driver"
        )
    command = ["nvidia-smi", f"--query-gpu={DEVICE_QUERY}", "--format=csv,noheader"]
    answer = subprocess.run(command, capture_output=True, text=True)
    devices = parse_devices(answer.stdout) if answer.returncode == 0 else []
    if not devices and "compute_cap" in answer.stdout + answer.stderr:
        raise Missing(
            f"this nvidia-smi does not know what to build for: {(answer.stdout or answer.stderr).strip()}",
            "a driver from 495 on reports the compute capability",
        )
    if not devices:
        raise Missing(
            f"nvidia-smi lists no GPU: {(answer.stderr or answer.stdout).strip()}",
            "see that its driver is loaded",
        )
    return devices[0]


def parse_devices(text: str) -> list[Device]:
    """What nvidia-smi answers to DEVICE_QUERY as CSV without a header; lines of another form are passed over."""
    lines = ([field.strip() for field in line.split(",")] for line in text.splitlines())
    return [Device(*fields) for fields in lines if len(fields) == 6 and re.fullmatch(r"\d+\.\d+", fields[4])]


def venv_folder(build: Path) -> Path:
    """Where this Python's environment lies in a build."""
    return build / f"venv-{platform.python_version()}"


def make_venv(folder: Path, wheels: Path) -> Path:
    """The Python of an environment with REQUIREMENTS, all from the folder of wheels. Raises Missing."""
    python = folder / "bin" / "python"
    if not python.exists():
        shutil.rmtree(folder, ignore_errors=True)
        if subprocess.run([sys.executable, "-m", "venv", folder]).returncode:
            shutil.rmtree(folder, ignore_errors=True)
            raise Missing(
                f"{sys.executable} cannot make an environment", "on Debian and Ubuntu: apt install python3-venv"
            )
    if pip(python, "install", "--quiet", *from_folder(wheels), *REQUIREMENTS):
        raise Missing(
            f"{wheels} lacks a wheel for Python {platform.python_version()}",
            f"prepare it with --python-version {sys.version_info.major}.{sys.version_info.minor}",
        )
    return python


def build_llama(
    python: Path, device: Device, toolkit: CudaToolkit, wheels: Path, build: Path, jobs: int
) -> dict[str, object]:
    """Build and install llama-cpp-python for that GPU, or install what a run before built. Raises Missing."""
    source = next(iter(sorted(wheels.glob("llama_cpp_python-*.tar.gz"))), None)
    if source is None:
        raise Missing(f"there is no source of {LLAMA} in {wheels}", "make that folder with --prepare")
    arguments = toolkit.cmake_arguments(device.architecture)
    # One folder for each way to build: a change of the compiler or of the GPU does not meet the other's objects.
    name = f"{source.name.removesuffix('.tar.gz')}-{device.architecture}-cuda{toolkit.version}"
    folder = build / re.sub(r"[^\w.-]", "-", name)
    wheel, seconds = next(folder.glob("*.whl"), None), None
    if wheel is None:
        env = {
            **os.environ,
            "CMAKE_ARGS": " ".join([*arguments, PARTS]),
            "CMAKE_BUILD_PARALLEL_LEVEL": str(jobs),
        }
        env |= {
            "CPATH": with_folders(toolkit.include_folders, "CPATH"),
            "PATH": with_folders([python.parent], "PATH"),
        }
        started = time.monotonic()
        settings = f"--config-settings=build-dir={folder / 'objects'}"
        # pip's own cache does not record how a wheel was built.
        steps = ["wheel", "--no-deps", "--no-cache-dir", *from_folder(wheels), "--no-build-isolation", settings]
        steps += ["--wheel-dir", str(folder)]
        if pip(python, *steps, source, env=env):
            raise Missing(
                f"{LLAMA} could not be built", "the reason is above; --help says what the build needs"
            )
        wheel, seconds = next(folder.glob("*.whl")), time.monotonic() - started
    if pip(python, "install", "--quiet", "--no-deps", "--force-reinstall", *from_folder(wheels), wheel):
        raise Missing(f"{wheel} could not be installed", "delete it to build it again")
    return {
        "llama_cpp_python": wheel.name.split("-")[1],
        "cuda": toolkit.version,
        "cmake_arguments": " ".join(arguments),
        "wheel_bytes": wheel.stat().st_size,
        "seconds": seconds,
    }


def with_folders(folders: Sequence[str | Path], variable: str) -> str:
    """The folders before those that the environment's variable has."""
    return os.pathsep.join(filter(None, [*map(str, folders), os.environ.get(variable, "")]))


def prepare(folder: Path, python_version: str, *, with_cmake: bool) -> None:
    """Fill the folder of wheels, from the package index that pip is set to. Raises Missing."""
    folder.mkdir(parents=True, exist_ok=True)
    constraints = ["--constraint", str(ROOT / "scripts/constraints.txt")]
    platforms = [
        word
        for name in ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
        for word in ("--platform", f"{name}_x86_64")
    ]
    wanted = [*REQUIREMENTS, *(["cmake", "ninja"] if with_cmake else [])]
    chosen = ["--only-binary=:all:", "--implementation=cp", f"--python-version={python_version}", *platforms]
    if pip(Path(sys.executable), "download", "--quiet", "--dest", folder, *constraints, *chosen, *wanted):
        raise Missing("pip could not fetch the wheels", "its message is above")
    pinned = next(
        line
        for line in (ROOT / "scripts/constraints.txt").read_text().splitlines()
        if line.startswith(f"{LLAMA}==")
    )
    whole = folder / "whole"
    if pip(
        Path(sys.executable),
        "download",
        "--quiet",
        "--dest",
        whole,
        "--no-deps",
        f"--no-binary={LLAMA}",
        pinned,
    ):
        raise Missing(f"pip could not fetch the source of {LLAMA}", "its message is above")
    source = next(whole.glob("*.tar.gz"))
    trim(source, folder / source.name)
    shutil.rmtree(whole)
    n_bytes = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{folder}: {len(list(folder.iterdir()))} files, {n_bytes / 1e6:.0f} MB, for Python {python_version}")


def trim(source: Path, target: Path) -> None:
    """The source without what its build does not read."""
    with tarfile.open(source) as whole, tarfile.open(target, "w:gz") as trimmed:
        for member in whole:
            if not NOT_NEEDED.match(member.name):
                trimmed.addfile(member, whole.extractfile(member) if member.isreg() else None)


def from_folder(wheels: Path) -> list[str]:
    """Pip's words for taking all from there and nothing from a network."""
    return ["--no-index", "--find-links", str(wheels)]


def pip(python: Path, *words: str | Path, env: dict[str, str] | None = None) -> int:
    """Run pip; its exit code."""
    command = [str(python), "-m", "pip", "--disable-pip-version-check", *map(str, words)]
    return subprocess.run(command, env=env).returncode


def read_report(file: Path) -> dict[str, Any]:
    """What --show prints again. Raises Missing."""
    try:
        report: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Missing(f"{file} cannot be read: {error}", "name the report.json of an earlier check") from error
    return report


def read_pieces(file: Path) -> list[dict[str, object]]:
    """What the tests wrote of what they saw, one JSON object a line, in the order in which they ran."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def read_results(file: Path) -> list[dict[str, object]]:
    """Name, outcome, seconds and reason of each test, from pytest's JUnit XML."""
    if not file.exists():
        return []
    results: list[dict[str, object]] = []
    for case in ElementTree.parse(file).iter("testcase"):
        ended = next((part for part in case if part.tag in ("failure", "error", "skipped")), None)
        outcome = "passed" if ended is None else {"failure": "failed"}.get(ended.tag, ended.tag)
        reason = "" if ended is None else (ended.get("message") or "").strip()
        results.append(
            {
                "name": case.get("name"),
                "outcome": outcome,
                "seconds": float(case.get("time", 0)),
                "reason": reason,
            }
        )
    return results


if __name__ == "__main__":
    sys.exit(main())
