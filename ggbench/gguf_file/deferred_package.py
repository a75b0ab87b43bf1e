"""Packages whose own code waits until somebody needs it, so that one of their modules can be had for its price alone.

`import llama_cpp.llama_cpp`, the C functions, runs llama_cpp's `__init__` first, which imports chat templates, a cache
and a web of types: 40 ms of the 50, for things that ggbench never calls. Python has no way to skip a package's code but
to put the package where the import system looks for it, so that is what happens here; the package stays the real one:
whoever asks it for a name that it lacks runs its code then.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType


class _DeferredPackage(ModuleType):
    """A package that has its path and spec, and nothing else yet."""

    def __getattr__(self, name: str) -> object:
        spec = self.__spec__
        if spec is None or spec.loader is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        # Its code may ask for names that are not there yet, which is an error as in any import.
        self.__class__ = ModuleType  # type: ignore[assignment]
        try:
            spec.loader.exec_module(self)
        except BaseException:
            self.__class__ = _DeferredPackage
            raise
        return getattr(self, name)


def defer_package(name: str) -> None:
    """Let a top-level package's code wait for the first use of a name that it defines; its modules import as ever.

    Nothing happens where the package is already imported, or is not installed: then the import says so.
    """
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is None or spec.submodule_search_locations is None:
        return
    package = importlib.util.module_from_spec(spec)
    package.__class__ = _DeferredPackage
    sys.modules[name] = package
