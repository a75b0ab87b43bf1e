"""The installed llama.cpp: its version, build options and visible devices.

Queried in a child process, as loading a CUDA build takes GPU memory, and may print or abort.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import msgspec

from ggbench.text import shorten, signal_name


def build_command(cmake_args: str, backend: str = "") -> str:
    """Return the words that tell a user how to compile llama.cpp with these arguments, those of a backend of set-up."""
    build = f'CMAKE_ARGS="{cmake_args}"'
    set_up = f"./scripts/setup --backend {backend}" if backend else f"{build} ./scripts/setup"
    return (
        f"{set_up} in a checkout; if pip installed it: {build} pip install --force-reinstall --no-cache-dir --no-deps"
        " llama-cpp-python"
    )


class LlamaDevice(msgspec.Struct, frozen=True):
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


class LlamaBuild(msgspec.Struct, frozen=True):
    """The llama.cpp that ggbench uses; without a version if it cannot be loaded."""

    is_installed: bool = True
    problem: str = ""
    llama_cpp_python: str = ""
    llama_cpp: str = ""
    commit: str = ""
    features: dict[str, dict[str, str]] = {}
    """Features that each backend was compiled with, by llama.cpp's names: `{"CPU": {"AVX2": "1", ...}}`."""
    build_flags: str = ""
    """CMake options it was compiled with; empty if unknown."""
    backends: tuple[str, ...] = ()
    devices: tuple[LlamaDevice, ...] = ()

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


def describe_llama_build(command: tuple[str, ...] = (), timeout_s: float = 60.0) -> LlamaBuild:
    """Describe the llama.cpp that workers load, or why it cannot be loaded.

    `command` replaces the child process.
    """
    if not command and importlib.util.find_spec("llama_cpp") is None:
        return LlamaBuild(is_installed=False, problem="the package llama-cpp-python is not installed")
    try:
        child = subprocess.run(
            command or (sys.executable, "-P", "-m", __name__),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            env={**os.environ, "GGML_NO_BACKTRACE": "1"},
        )
    except subprocess.TimeoutExpired:
        return LlamaBuild(problem=f"it did not load within {timeout_s:.0f} s")
    try:
        return msgspec.json.decode(child.stdout, type=LlamaBuild)
    except msgspec.DecodeError:
        said = shorten(child.stderr.decode(errors="replace").strip().rpartition("\n")[2], 200)
        if child.returncode < 0:
            killed = f"its process was killed by {signal_name(-child.returncode)}"
            return LlamaBuild(problem=f"{killed}: {said}" if said else killed)
        return LlamaBuild(problem=said or f"loading it ended its process with {child.returncode}")


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


def _parse_features(system_info: str) -> dict[str, dict[str, str]]:
    """Parse `llama_print_system_info()`: `CPU : AVX = 1 | AVX2 = 1 | CUDA : ARCHS = 890 | `."""
    found: dict[str, dict[str, str]] = {}
    features: dict[str, str] = {}
    for part in system_info.split("|"):
        backend, colon, rest = part.partition(" : ")
        if colon:
            features = found.setdefault(backend.strip(), {})
        name, equals, value = (rest if colon else part).partition("=")
        if equals:
            features[name.strip()] = value.strip()
    return found


def _describe() -> LlamaBuild:
    """Load llama.cpp and query it, in the child."""
    try:
        from ggbench.engines.llama.c_functions import binding_version, lib
        from ggbench.engines.llama.ggml_devices import GgmlDevices, build_commit
        from ggbench.engines.llama.model import llama_library
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        return LlamaBuild(problem=f"{type(error).__name__}: {error}")
    lib.llama_backend_init()
    devices = GgmlDevices(llama_library())
    return LlamaBuild(
        llama_cpp_python=binding_version(),
        llama_cpp=lib.llama_version().decode(errors="replace"),
        commit=build_commit(llama_library()),
        build_flags=build_flags(llama_library()),
        features=_parse_features(lib.llama_print_system_info().decode(errors="replace")),
        backends=devices.backends,
        devices=devices.described(),
    )


def main() -> None:
    """Write the description to stdout as JSON; output of the libraries goes to stderr."""
    answer = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(answer, "wb") as stdout:
        stdout.write(msgspec.json.encode(_describe()))


if __name__ == "__main__":
    main()
