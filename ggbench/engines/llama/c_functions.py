"""llama.cpp's C functions, `lib`, without the rest of the llama_cpp package, which imports numpy, jinja2 and more.

A worker that only sizes contexts is ready in a third of the time. Raises what loading the library raises.
"""

from __future__ import annotations

from ggbench.gguf_file.gguf_constants import defer_package

defer_package("llama_cpp")
import llama_cpp.llama_cpp as lib  # noqa: E402 - the package has to be deferred first

__all__ = ["lib"]
