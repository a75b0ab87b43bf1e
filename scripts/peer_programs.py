"""llama.cpp's own programs, built once from the source that llama-cpp-python carries, and how they are run.

They run with the libraries that ggbench loads, since two builds of one source differ in speed; only what these lack,
the programs themselves and llama.cpp's `common`, is that of the build.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ggbench import paths
from ggbench.engines.llama.model import llama_library
from scripts.packages import download

ROOT = Path(__file__).resolve().parent.parent
CACHE = paths.caches_dir() / "peers"
PROGRAMS = ("llama-bench", "llama-batched-bench", "llama-perplexity", "llama-server", "llama-fit-params")
_OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",  # it would be downloaded
    "-DLLAMA_OPENSSL=OFF",
    "-DCMAKE_C_FLAGS=-U__AMX_INT8__",  # llama.cpp's AMX code faults on some machines (its issue 20824)
    "-DCMAKE_CXX_FLAGS=-U__AMX_INT8__",
)


@dataclass(frozen=True, slots=True)
class Peers:
    """A folder of the PROGRAMS."""

    folder: Path

    def run(self, program: str, *words: object) -> tuple[str, float]:
        """Run a program to its end; returns all that it wrote, and the seconds. Raises SystemExit where it fails."""
        return timed([self.folder / program, *words], peer_environment())

    @property
    def version(self) -> str:
        """llama.cpp's version and commit as llama-server states them."""
        text, _ = self.run("llama-server", "--version")
        found = re.search(r"^version: (.+)$", text, re.MULTILINE)
        return found[1] if found else "unknown"


def peer_environment() -> dict[str, str]:
    """Return the variable that has a program load ggbench's llama.cpp."""
    return {"LD_LIBRARY_PATH": str(llama_library().parent)}


def timed(command: Iterable[object], environment: dict[str, str]) -> tuple[str, float]:
    """Run a command to its end; returns its stdout and stderr together, and its seconds. Raises SystemExit."""
    words = [str(word) for word in command]
    started = time.perf_counter()
    done = subprocess.run(
        words, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    seconds = time.perf_counter() - started
    if done.returncode:
        sys.exit(f"{' '.join(words)} ended with {done.returncode}: {done.stdout[-2000:]}")
    return done.stdout, seconds


def find_or_build(folder: Path | None, jobs: int, source: Path | None = None) -> Peers:
    """Return the programs of a folder, else those of ggbench's cache, built where they are not there yet.

    `source` is llama-cpp-python's sdist, which is downloaded where it is None. Raises SystemExit.
    """
    if folder is not None:
        if missing := [name for name in PROGRAMS if not (folder / name).exists()]:
            sys.exit(f"Error: {folder} has no {', '.join(missing)}\nHint: give the folder that holds all programs")
        return Peers(folder)
    pinned = pinned_llama()
    build = CACHE / pinned.replace("==", "-")
    if not (build / "ready").exists():
        _build(build, pinned, jobs, source)
    return Peers(build / "bin")


def pinned_llama() -> str:
    """Return llama-cpp-python with its version, as `llama-cpp-python==0.3.36`."""
    lines = (ROOT / "scripts/constraints.txt").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith("llama-cpp-python=="))


def _build(build: Path, pinned: str, jobs: int, source: Path | None) -> None:
    """Compile into a folder; one that was interrupted is continued."""
    if shutil.which("cmake") is None:
        sys.exit("Error: there is no cmake on PATH\nHint: pip install cmake ninja")
    build.mkdir(parents=True, exist_ok=True)
    sources = build / "source"
    if not sources.exists():
        with tempfile.TemporaryDirectory(dir=build) as aside:
            sdist = source or download(pinned, Path(aside) / "sdist", "--no-binary=llama-cpp-python")
            with tarfile.open(sdist) as archive:
                archive.extractall(Path(aside) / "all", filter="data")
            (package,) = (Path(aside) / "all").iterdir()
            (package / "vendor/llama.cpp").rename(sources)
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    print(f"compiling {', '.join(PROGRAMS)} of {pinned} in {build}", file=sys.stderr)
    started = time.monotonic()
    for step in (
        ["cmake", "-S", sources, "-B", build, *generator, *_OPTIONS],
        ["cmake", "--build", build, "-j", jobs, "--target", *PROGRAMS],
    ):
        if subprocess.run([str(word) for word in step], stdout=sys.stderr).returncode:
            sys.exit("Error: llama.cpp's programs could not be built\nHint: the reason is above")
    (build / "ready").touch()
    print(f"compiled in {time.monotonic() - started:.0f} s", file=sys.stderr)
