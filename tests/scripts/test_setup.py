"""`scripts/setup` and the launcher in a small checkout, with packages made here and no network: pip itself is real."""

import base64
import hashlib
import importlib.util
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
TOOLS = (
    "bash", "env", "basename", "cat", "cksum", "cp", "cut", "dirname", "flock", "grep", "gzip", "head", "mkdir", "mv",
    "readlink", "realpath", "rm", "tail", "tar", "uname",
)  # fmt: skip
PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "{name}"
version = "{version}"
"""
OF_GGBENCH = """
import shutil
def build_editable(folder, config_settings=None, metadata_directory=None):
    return shutil.copy("ggbench-0.1.0-py3-none-any.whl", folder).rpartition("/")[2]
"""
OF_LLAMA = """
import os, pathlib, shutil, time
def prepare_metadata_for_build_wheel(folder, config_settings=None):
    target = pathlib.Path(folder, "llama_cpp_python-0.3.36.dist-info")
    target.mkdir()
    (target / "METADATA").write_text("Metadata-Version: 2.1\\nName: llama_cpp_python\\nVersion: 0.3.36\\n")
    return target.name
def build_wheel(folder, config_settings=None, metadata_directory=None):
    objects = pathlib.Path(config_settings["build-dir"])
    objects.mkdir(parents=True, exist_ok=True)
    with open(os.environ["BUILDS"], "a") as builds:
        builds.write(f"{len(list(objects.iterdir()))} objects: {os.environ['CMAKE_ARGS']}\\n")
    (objects / "llama.o").touch()
    if os.environ.get("FAILS"):
        raise SystemExit("no room")
    if os.environ.get("WAITS"):
        pathlib.Path(os.environ["WAITS"]).touch()
        time.sleep(600)
    return shutil.copy("llama_cpp_python-0.3.36-py3-none-any.whl", folder).rpartition("/")[2]
"""


def wheel(
    folder: Path, name: str, version: str, module: str = "", requires: str = "", tag: str = "py3-none-any"
) -> Path:
    info = f"{name}-{version}.dist-info"
    files = {
        f"{module or name}/__init__.py": "",
        f"{module or name}/__main__.py": f"print('this is {name}')\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    records = [
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip('=')},{len(text)}"
        for path, text in files.items()
    ]
    files[f"{info}/RECORD"] = "\n".join([*records, f"{info}/RECORD,,"]) + "\n"
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inner, text in files.items():
            archive.writestr(inner, text)
    return path


@dataclass
class Checkout:
    root: Path
    tools: Path
    environ: dict[str, str] = field(default_factory=dict)

    def tool(self, name: str, script: str) -> None:
        (self.tools / name).unlink(missing_ok=True)
        (self.tools / name).write_text(f"#!/usr/bin/env bash\n{script}\n")
        (self.tools / name).chmod(0o755)

    def run(self, script: str, *words: object, **environ: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.root / "scripts" / script), *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, env=self.environ | environ, timeout=100)

    def interrupt(self, script: str, waits: Path, *words: object) -> tuple[int, str]:
        """Press Ctrl-C while a script compiles; return its exit code and stderr."""
        command, environ = [str(self.root / "scripts" / script), *map(str, words)], {"WAITS": str(waits)}
        with subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env=self.environ | environ, start_new_session=True
        ) as process:
            while not waits.exists() and process.poll() is None:
                time.sleep(0.02)
            os.killpg(process.pid, signal.SIGINT)
            _, err = process.communicate(timeout=100)
        return process.returncode, err

    @property
    def builds(self) -> list[str]:
        """Every compilation, by how many objects it found and its CMAKE_ARGS."""
        file = Path(self.environ["BUILDS"])
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `python3 -m venv` makes, copied from here each time; its pip is the tests' own, as another takes seconds.

    Copies keep the times of the files, or Python would compile pip anew in each.
    """
    folder, pip = tmp_path_factory.mktemp("environment") / "venv", importlib.util.find_spec("pip")
    subprocess.run([PYTHON, "-m", "venv", folder, *(["--without-pip"] if pip else [])], check=True)
    if pip is not None and pip.origin is not None:
        (packages,) = folder.glob("lib/python*/site-packages")
        shutil.copytree(Path(pip.origin).parent, packages / "pip")
    return folder


@pytest.fixture
def checkout(tmp_path: Path, environment: Path) -> Checkout:
    root, tools = tmp_path / "check out", tmp_path / "tools"
    (root / "scripts").mkdir(parents=True)
    tools.mkdir()
    for name in ("setup", "backends.sh", "ggbench", "llama_parts.cmake"):
        shutil.copy(ROOT / "scripts" / name, root / "scripts" / name)
    (root / "scripts/constraints.txt").write_text("llama-cpp-python==0.3.36\n")
    requires = 'dependencies = ["llama-cpp-python>=0.3.36"]\n'
    (root / "pyproject.toml").write_text(PYPROJECT.format(name="ggbench", version="0.1.0") + requires)
    (root / "backend.py").write_text(OF_GGBENCH)
    wheel(root, "ggbench", "0.1.0", requires="Requires-Dist: llama-cpp-python>=0.3.36\n")
    for name in TOOLS:
        (tools / name).symlink_to(shutil.which(name) or name)
    environ = {"PATH": str(tools), "HOME": str(tmp_path), "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    environ["SYSFS"] = str(tmp_path / "sys")
    made = Checkout(root, tools, environ | {"BUILDS": str(tmp_path / "builds")})
    made.tool("python3", f'[ "$1 $2" = "-m venv" ] && exec cp -Rp {environment} "$3"; exec {PYTHON} "$@"')
    return made


def source_of_llama(folder: Path) -> None:
    """Put a source of llama-cpp-python there, whose compilation writes down that it ran."""
    wheel(folder, "llama_cpp_python", "0.3.36", "llama_cpp")
    made = folder / "llama_cpp_python-0.3.36-py3-none-any.whl"
    files = {
        "pyproject.toml": PYPROJECT.format(name="llama_cpp_python", version="0.3.36").encode(),
        "backend.py": OF_LLAMA.encode(),
        "PKG-INFO": b"Metadata-Version: 2.1\nName: llama_cpp_python\nVersion: 0.3.36\n",
        made.name: made.read_bytes(),
    }
    with tarfile.open(folder / "llama_cpp_python-0.3.36.tar.gz", "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"llama_cpp_python-0.3.36/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    made.unlink()


NO_VENV = 'case "$2" in *ensurepip*) exit 1 ;; esac; exec {python} "$@"'
OLD = 'case "$2" in *"(3, 11)"*) exit 1 ;; esac; exec {python} "$@"'


@pytest.mark.parametrize(
    ("tool", "script", "environ", "words", "what", "to_do"),
    [
        ("python3", NO_VENV, {}, (), "has no venv module", "apt install python3-venv"),
        ("python3", OLD, {}, (), "no Python 3.11 or newer", "PYTHON=/path"),
        ("", "", {}, (), "no C++ compiler on PATH", "apt install g++"),
        ("c++", "exit 0", {"CMAKE_ARGS": "-DGGML_CUDA=on", "CUDA_PATH": "/"}, (), "no CUDA compiler", "CUDA toolkit"),
        ("", "", {}, ("tests",), "unknown argument tests", "scripts/setup [test]"),
        ("", "", {}, ("--backend", "opencl"), "--backend opencl is unknown", "auto|cpu|cuda|vulkan|rocm|sycl"),
        ("", "", {}, ("--backend", "cuda", "--wheels", __file__), "--backend compiles", "leave one"),
        ("c++", "exit 0", {}, ("--backend", "sycl"), "no SYCL compiler", "oneAPI"),
        ("c++", "exit 0", {}, ("--backend", "vulkan"), "no compiler of shaders (glslc)", "apt install glslc"),
        ("", "", {}, ("--wheels", "/no/where"), "there is no /no/where", "give a wheel"),
        ("", "", {"XDG_CACHE_HOME": "/dev/null"}, (), "/dev/null/ggbench/llama.cpp/0.3.36 cannot be written", "XDG_CA"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said_at_once(
    checkout: Checkout, tool: str, script: str, environ: dict[str, str], words: tuple[str, ...], what: str, to_do: str
) -> None:
    if tool:
        checkout.tool(tool, script.format(python=PYTHON))

    ran = checkout.run("setup", *words, **environ)

    assert (ran.returncode, ran.stdout) == (1, "")
    error, hint = ran.stderr.splitlines()[-2:]
    assert error.startswith("Error: ")
    assert hint.startswith("Hint: ")
    assert what in error
    assert to_do in hint
    assert not (checkout.root / ".venv").exists()


def vulkan_headers(folder: Path, version: tuple[int, int, int]) -> Path:
    """Write the two lines of Vulkan's headers that state their version, in the form that Khronos gives them."""
    major, minor, patch = version
    (folder / "vulkan").mkdir(parents=True)
    (folder / "vulkan/vulkan_core.h").write_text(
        f"#define VK_HEADER_VERSION {patch}\n"
        f"#define VK_HEADER_VERSION_COMPLETE VK_MAKE_API_VERSION(0, {major}, {minor}, VK_HEADER_VERSION)\n"
    )
    return folder


def test_vulkan_headers_that_are_too_old_are_said_before_a_compilation(checkout: Checkout, tmp_path: Path) -> None:
    for tool in ("c++", "glslc"):
        checkout.tool(tool, "exit 0")
    folder = vulkan_headers(tmp_path / "include", (1, 3, 239))
    found = f"-DSPIRV-Headers_DIR=/ -DVulkan_LIBRARY=/ -DVulkan_INCLUDE_DIR={folder}"

    ran = checkout.run("setup", "--backend", "vulkan", CMAKE_ARGS=found)

    *_, error, hint = ran.stderr.splitlines()
    assert ran.returncode == 1
    assert error == f"Error: the Vulkan headers in {folder} are 1.3.239, and llama.cpp needs 1.3.272"
    assert "unpack a newer libvulkan-dev" in hint


AMD, NVIDIA, INTEL, ASPEED = "0x1002", "0x10de", "0x8086", "0x1a03"


@pytest.mark.parametrize(
    ("vendors", "tools", "chosen"),
    [
        ((ASPEED,), ("nvcc",), "cpu found no GPU"),
        ((INTEL, NVIDIA), ("nvcc",), "cuda found an NVIDIA GPU"),
        ((NVIDIA,), ("glslc",), "vulkan found an NVIDIA GPU"),
        ((NVIDIA, AMD), ("hipconfig",), "rocm found an AMD GPU"),
        ((INTEL,), ("icpx",), "sycl found an Intel GPU"),
        (
            (NVIDIA, INTEL),
            (),
            "cpu found an NVIDIA GPU, but no CUDA compiler (nvcc) on PATH; to use it, install the CUDA toolkit, "
            "then: ./scripts/setup --backend cuda",
        ),
    ],
)
def test_the_backend_is_chosen_by_the_gpu_and_by_what_can_be_compiled(
    checkout: Checkout, tmp_path: Path, vendors: tuple[str, ...], tools: tuple[str, ...], chosen: str
) -> None:
    for number, vendor in enumerate(vendors):
        device = tmp_path / f"sys/bus/pci/devices/{number}"
        device.mkdir(parents=True)
        (device / "class").write_text("0x030000\n")
        (device / "vendor").write_text(f"{vendor}\n")
    for tool in tools:
        checkout.tool(tool, "exit 0")
    headers = vulkan_headers(tmp_path / "include", (1, 3, 272))
    given = f"-DSPIRV-Headers_DIR=/ -DVulkan_LIBRARY=/ -DVulkan_INCLUDE_DIR={headers}"

    words = ["bash", "-euc", '. scripts/backends.sh; choose_backend; echo "$backend $found"']
    environ = checkout.environ | {"CMAKE_ARGS": given, "CUDA_PATH": "/"}
    ran = subprocess.run(words, cwd=checkout.root, env=environ, capture_output=True, text=True)

    assert (ran.stdout, ran.stderr) == (f"{chosen}\n", "")


@pytest.mark.slow
@pytest.mark.timeout(600)  # pip on a busy machine
def test_a_wheel_is_used_as_it_is_and_stays(checkout: Checkout, tmp_path: Path) -> None:
    """Until the interpreter of the environment is gone, as after an upgrade of the system."""
    using = "ggbench: using llama-cpp-python 0.4.1+cu130 as it is\n"
    folder = tmp_path / "wheels of mine"  # of which the newest that fits is used
    folder.mkdir()
    wheel(folder, "llama_cpp_python", "0.4.1+cu130", "llama_cpp")
    for version, tag in (("0.4.0", "py3-none-any"), ("0.4.1", "py3-none-zos_s390x"), ("0.4.2", "cp27-none-any")):
        wheel(folder, "llama_cpp_python", version, "llama_cpp", tag=tag)

    first = checkout.run("setup", "--wheels", folder)
    launched = checkout.run("ggbench")
    refused = checkout.run("setup", "--wheels", wheel(tmp_path, "llama_cpp_python", "0.3.9"))
    (checkout.root / ".venv/bin/python").unlink()
    gone = checkout.run("ggbench")

    assert (first.returncode, first.stderr) == (0, using)
    assert (launched.returncode, launched.stdout, launched.stderr) == (0, "this is ggbench\n", "")
    *_, error, hint = refused.stderr.splitlines()
    assert error == "Error: llama_cpp_python-0.3.9-py3-none-any.whl cannot be installed; the reason is above"
    assert (refused.returncode, hint[:43]) == (1, "Hint: give llama-cpp-python>=0.3.36 for Pyt")
    assert gone.returncode == 1
    assert "no C++ compiler" in gone.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)  # pip on a busy machine
def test_a_compilation_goes_on_and_is_kept(checkout: Checkout, tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    source_of_llama(packages)
    wheel(packages, "other", "1.0")
    project = checkout.root / "pyproject.toml"
    project.write_text(project.read_text().replace('36"]', '36", "other>=1"]'))
    checkout.tool("c++", "exit 0")
    checkout.tool("nvcc", "exit 0")
    checkout.environ["PIP_FIND_LINKS"] = str(packages)

    code, interrupted = checkout.interrupt("setup", tmp_path / "waits")
    subprocess.run(["flock", checkout.root / ".venv.lock", "true"], check=True)  # held while the others are installed
    installed = {path.name for path in checkout.root.glob(".venv/lib/python*/site-packages/*")}
    continued = checkout.run("setup")
    kept = list(tmp_path.glob(".cache/ggbench/llama.cpp/0.3.36/*/*.whl"))
    failed = checkout.run("setup", CMAKE_ARGS="-DGGML_CUDA=on", FAILS="1")

    assert (code, interrupted.splitlines()[-1]) == (130, "ggbench: interrupted; the same command goes on")
    assert "other" in installed and "llama_cpp" not in installed
    assert (continued.returncode, len(kept)) == (0, 1), continued.stderr
    assert "compiling llama.cpp" in continued.stderr
    parts = f"-DCMAKE_PROJECT_llama_cpp_INCLUDE='{checkout.root}/scripts/llama_parts.cmake'"
    assert [each.partition(":")[0] for each in checkout.builds] == ["0 objects", "1 objects", "0 objects"]
    assert all(parts in each for each in checkout.builds)
    assert ["-DGGML_CUDA=on" in each for each in checkout.builds] == [False, False, True]
    assert failed.returncode == 1
    assert "no room" in failed.stderr
    assert failed.stderr.splitlines()[-2] == "Error: llama.cpp could not be compiled"
