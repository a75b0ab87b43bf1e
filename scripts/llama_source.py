"""The source of llama.cpp that llama-cpp-python carries, compiled to what its wheel lacks: programs, other backends."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from scripts.packages import download

ROOT = Path(__file__).resolve().parent.parent
OPTIONS = (
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


def pinned_llama() -> str:
    """Return llama-cpp-python with its version, as `llama-cpp-python==0.3.36`."""
    lines = (ROOT / "scripts/constraints.txt").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith("llama-cpp-python=="))


def compile_llama(
    build: Path, targets: Sequence[str], options: Sequence[str], jobs: int, sdist: Path | None
) -> None:
    """Compile targets into a folder, unless that was done before; an interrupted build is continued.

    `sdist` is llama-cpp-python's, downloaded if None. Raises SystemExit.
    """
    if (build / "ready").exists():
        return
    if shutil.which("cmake") is None:
        sys.exit("Error: there is no cmake on PATH\nHint: pip install cmake ninja")
    build.mkdir(parents=True, exist_ok=True)
    package = build / "source"  # whole: the commit that llama.cpp is compiled with is read from its .git
    if not package.exists():
        with tempfile.TemporaryDirectory(dir=build) as aside:
            archived = sdist or download(pinned_llama(), Path(aside) / "sdist", "--no-binary=llama-cpp-python")
            with tarfile.open(archived) as archive:
                archive.extractall(Path(aside) / "all", filter="data")
            (unpacked,) = (Path(aside) / "all").iterdir()
            unpacked.rename(package)
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    print(f"compiling {', '.join(targets)} of {pinned_llama()} in {build}", file=sys.stderr)
    started = time.monotonic()
    for step in (
        ["cmake", "-S", package / "vendor/llama.cpp", "-B", build, *generator, *OPTIONS, *options],
        ["cmake", "--build", build, "-j", jobs, "--target", *targets],
    ):
        if subprocess.run([str(word) for word in step], stdout=sys.stderr).returncode:
            sys.exit("Error: llama.cpp could not be compiled\nHint: the reason is above")
    (build / "ready").touch()
    print(f"compiled in {time.monotonic() - started:.0f} s", file=sys.stderr)
