"""The installed llama.cpp: its version, build options and visible devices.

`build_query` asks it in a child process, as loading a CUDA build takes GPU memory, and may print or abort.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ggbench.engines.endings import Crashed
from ggbench.locks import wait_for
from ggbench.record import Record
from ggbench.text import shorten


def pip_command(cmake_args: str) -> str:
    return f'CMAKE_ARGS="{cmake_args}" pip install --force-reinstall --no-cache-dir --no-deps llama-cpp-python'


_WITH_RPC = "-DGGML_RPC=on"
RPC_HINT = (
    f'build llama.cpp with RPC: CMAKE_ARGS="{_WITH_RPC}" ./scripts/setup in a checkout; '
    f"if pip installed it: {pip_command(_WITH_RPC)}"
)


class LlamaDevice(Record):
    name: str
    description: str
    backend: str
    is_gpu: bool
    """Including integrated ones."""
    free_bytes: int = 0
    total_bytes: int = 0
    device_id: str | None = None
    """The PCI bus id of a GPU that has one."""
    is_offloading: bool = False
    """Whether llama.cpp puts layers on it unless told otherwise."""
    buffers: str = ""
    """Name of its buffers in llama.cpp's log: `CUDA0`, `RPC0[192.168.1.7:50052]`."""


class LlamaBuild(Record):
    """The llama.cpp that ggbench uses; without a version if it cannot be loaded."""

    is_installed: bool = True
    problem: str = ""
    log: tuple[str, ...] = ()
    """What the process that loaded it printed, if that ended it."""
    llama_cpp_python: str = ""
    llama_cpp: str = ""
    commit: str = ""
    features: tuple[str, ...] = ()
    """What the CPU backend was compiled with, by llama.cpp's names: `AVX2`."""
    build_flags: str = ""
    """CMake options it was compiled with; empty if unknown."""
    backends: tuple[str, ...] = ()
    devices: tuple[LlamaDevice, ...] = ()
    new_fields: tuple[str, ...] = ()
    """Fields of llama.cpp's parameters that ggbench does not know; they stay at llama.cpp's default."""
    gone_fields: tuple[str, ...] = ()
    """Fields that ggbench would set, but that are not there."""
    interface_problem: str = ""
    """Why no GPU can be described to it; empty if one can."""

    @property
    def sees_gpu(self) -> bool:
        return any(device.is_gpu for device in self.devices)


def build_flags(library: Path) -> str:
    """Return the CMake options that scripts/setup stored next to the compiled library; empty if there are none.

    Options with a path are left out: runs and reports are shown to others.
    """
    try:
        text = library.with_name("build_flags.txt").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return " ".join(word for word in text.split() if "/" not in word)


_QUERY = (sys.executable, "-P", "-m", "ggbench.engines.llama.build_query")
_POLL_S = 0.1


def describe_llama_build(timeout_s: float = 60.0, servers: Sequence[str] = ()) -> LlamaBuild:
    """Describe the llama.cpp that workers load, with the devices of RPC servers, or why it cannot be loaded."""
    if importlib.util.find_spec("llama_cpp") is None:
        return LlamaBuild(is_installed=False, problem="the package llama-cpp-python is not installed")
    printed: list[bytes] = []

    def has_answered() -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            printed[:] = child.communicate(timeout=_POLL_S)
        return child.returncode is not None

    with subprocess.Popen(
        [*_QUERY, *servers],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "GGML_NO_BACKTRACE": "1"},
    ) as child:
        try:
            if not wait_for(has_answered, "llama.cpp to list its devices", limit_s=timeout_s, pause_s=0):
                return LlamaBuild(problem=f"it did not answer within {timeout_s:.0f} s")
        finally:
            child.kill()
    answer, error = printed
    try:
        return msgspec.json.decode(answer, type=LlamaBuild)
    except msgspec.DecodeError:
        log = tuple(error.decode(errors="replace").strip().splitlines())
    said = shorten(log[-1], 200) if log else ""
    return LlamaBuild(problem=Crashed.exited("its process", child.returncode, said).message, log=log)


_GPU_BACKENDS = ("cuda", "hip", "vulkan", "sycl", "metal", "musa", "cann", "opencl")


def gpu_backends() -> tuple[str, ...]:
    """Return the GPU backends among llama.cpp's libraries here, without loading any: `cuda`, `vulkan`."""
    return tuple(name for name in _GPU_BACKENDS if has_backend(name))


def has_backend(name: str) -> bool:
    """Return whether llama.cpp's libraries here include that of a backend: `rpc`, `vulkan`; none is loaded."""
    package = importlib.util.find_spec("llama_cpp")
    if package is None or package.origin is None:
        return False
    folder = Path(os.environ.get("LLAMA_CPP_LIB_PATH") or Path(package.origin).parent / "lib")
    return any(folder.glob(f"*ggml-{name}*"))


def offload_devices() -> tuple[LlamaDevice, ...]:
    """Return the devices of this machine that llama.cpp puts layers on, in its order; none if it cannot be loaded."""
    return tuple(device for device in describe_llama_build().devices if device.is_offloading)
