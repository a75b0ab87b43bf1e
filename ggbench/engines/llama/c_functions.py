"""llama.cpp's C functions, `lib`, without the rest of the llama_cpp package, which imports numpy, jinja2 and more.

This makes a worker that only sizes contexts start in a third of the time. Import errors of the library are raised.
"""

from __future__ import annotations

from pathlib import Path

from ggbench.gguf_file.gguf_constants import defer_package

defer_package("llama_cpp")
import llama_cpp.llama_cpp as lib  # noqa: E402 - the package has to be deferred first

__all__ = ["binding_version", "lib", "llama_library"]


def binding_version() -> str:
    """Return llama-cpp-python's version, from the name of its dist-info: importlib.metadata takes 14 ms to import."""
    packages = Path(str(lib.__file__)).parents[1]
    found = [each.name.removesuffix(".dist-info") for each in packages.glob("llama_cpp_python-*.dist-info")]
    if len(found) != 1:
        from importlib.metadata import version

        return version("llama_cpp_python")
    return found[0].partition("-")[2]


def llama_library() -> Path:
    """Return the library that llama_cpp has loaded.

    This finds the right ggml: a wheel contains several copies of libggml, each with its own devices.
    """
    return Path(lib._lib._name)
