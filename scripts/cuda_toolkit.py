"""What gpu_check builds llama.cpp with: CUDA's compiler, cuBLAS and the driver's library, wherever they were put.

CMake finds all three in an NVIDIA installer's or a distribution's toolkit. One put together from pip's packages, as on
many rented and closed machines, has cuBLAS elsewhere and no stand-in for the driver's library; CMake is given both.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

SYSTEM = Path("/usr")
"""Where distributions put a toolkit's headers and libraries."""


@dataclass(frozen=True, slots=True)
class CudaToolkit:
    """One toolkit, with what lies outside it."""

    compiler: str
    """Path of nvcc."""
    root: Path
    """The folder above its `bin`, also where nvcc is a wrapper that lies elsewhere."""
    version: str
    """`12.8`, or `unknown`."""
    cublas: Path | None = None
    """Folder with `include` and `lib` of a cuBLAS that CMake would not find; None where it will, or there is none."""
    driver_library: Path | None = None
    """The driver's libcuda, where the toolkit has no stand-in to link with."""

    def cmake_arguments(self, architecture: str) -> list[str]:
        """For CUDA code of one architecture (`89-real`); what runs on the CPU is for the CPU that it is built on."""
        arguments = [
            "-DGGML_CUDA=on",
            f"-DCMAKE_CUDA_ARCHITECTURES={architecture}",
            f"-DCMAKE_CUDA_COMPILER={self.compiler}",
        ]
        if self.cublas is not None:
            arguments += [
                f"-DCUDA_{name}_LIBRARY={library}"
                for name in ("cublas", "cublasLt")
                if (library := _library(self.cublas / "lib", f"lib{name}"))
            ]
        if self.driver_library is not None:
            arguments.append(f"-DCUDA_cuda_driver_LIBRARY={self.driver_library}")
        # llama.cpp's AMX code faults on some machines (its issue 20824).
        return [*arguments, "-DCMAKE_C_FLAGS=-U__AMX_INT8__", "-DCMAKE_CXX_FLAGS=-U__AMX_INT8__"]

    @property
    def include_folders(self) -> list[str]:
        """For the compiler's CPATH, which both nvcc and the C++ compiler heed."""
        return [] if self.cublas is None else [str(self.cublas / "include")]

    @property
    def library_folders(self) -> list[str]:
        """Where the loader has to look at run time: only some installers register it."""
        outside = [] if self.cublas is None else [str(self.cublas / "lib")]
        return [*map(str, _library_folders(self.root)), *outside]


def find_toolkit(search_path: Sequence[str] = sys.path) -> CudaToolkit | None:
    """The toolkit of the nvcc on PATH, else in /usr/local/cuda; None without one. `search_path` has pip's packages."""
    compiler = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if compiler is None:
        return None
    output = subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout
    version = re.search(r"release (\d+\.\d+)", output)
    root = _root(compiler)
    return CudaToolkit(
        compiler,
        root,
        version[1] if version else "unknown",
        None if _has_cublas(root) else next(_packaged_cublas(search_path), None),
        None if any(_stand_ins(root)) else _loaded_driver_library(),
    )


def _root(compiler: str) -> Path:
    """Where nvcc itself says that it is: what is on PATH may be a wrapper."""
    output = subprocess.run(
        [compiler, "--dryrun", "-E", "-x", "cu", os.devnull], capture_output=True, text=True
    ).stderr
    top = re.search(r"^#\$ TOP=(.+)$", output, re.MULTILINE)
    return Path(top[1]).resolve() if top else Path(compiler).resolve().parent.parent


def _has_cublas(root: Path) -> bool:
    """Whether CMake finds cuBLAS by itself: in the toolkit, or in the system's folders, where distributions put it."""
    has_header = any((folder / "cublas_v2.h").exists() for folder in (root / "include", SYSTEM / "include"))
    folders = (*_library_folders(root), SYSTEM / "lib64", *SYSTEM.glob("lib/*-linux-gnu"))
    return has_header and any((folder / "libcublas.so").exists() for folder in folders)


def _library_folders(root: Path) -> Iterator[Path]:
    """Those of a toolkit that are there; pip's packages have no `lib64`."""
    yield from (folder for name in ("lib64", "lib") if (folder := root / name).is_dir())


def _packaged_cublas(search_path: Sequence[str]) -> Iterator[Path]:
    """In pip's packages, `nvidia-cublas` lies in `nvidia/cu13`, `nvidia-cublas-cu12` in `nvidia/cublas`."""
    for folder in map(Path, search_path):
        for header in sorted(folder.glob("nvidia/*/include/cublas_v2.h"), reverse=True):
            if _library(header.parent.parent / "lib", "libcublas"):
                yield header.parent.parent


def _library(folder: Path, name: str) -> Path | None:
    """A library by its name, or by one with a version: pip's packages have no other."""
    return next(iter(sorted(folder.glob(f"{name}.so*"))), None)


def _stand_ins(root: Path) -> Iterator[Path]:
    for folder in ("lib64/stubs", "lib/stubs", "lib64", "lib"):
        yield from (root / folder).glob("libcuda.so")


def _loaded_driver_library() -> Path | None:
    """The file that the loader takes for libcuda.so.1."""
    import ctypes

    try:
        ctypes.CDLL("libcuda.so.1")
        mapped = Path("/proc/self/maps").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"\S*/libcuda\.so\S*$", mapped, re.MULTILINE)
    return Path(found[0]) if found else None
