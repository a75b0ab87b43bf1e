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
        _run(self)
        return getattr(self, name)

    def __getattribute__(self, name: str) -> object:
        if name == "__dict__":  # for `vars`, which asks for no name that might be missing
            _run(self)
        return ModuleType.__getattribute__(self, name)  # not `super`: this may be a plain module by now

    def __dir__(self) -> list[str]:
        _run(self)
        return dir(self)


def _run(package: _DeferredPackage) -> None:
    """Run the package's own code, which makes it a module like any other."""
    spec = package.__spec__
    assert spec is not None and spec.loader is not None
    # Its code may ask for names that are not there yet, which is an error as in any import.
    package.__class__ = ModuleType  # type: ignore[assignment]
    try:
        spec.loader.exec_module(package)
    except BaseException:
        package.__class__ = _DeferredPackage
        raise


def defer_package(name: str) -> None:
    """Let a top-level package's code wait for the first use of a name that it defines; its modules import as ever.

    Nothing happens where the package is already imported, or is not installed: then the import says so.
    """
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        return
    package = importlib.util.module_from_spec(spec)
    package.__class__ = _DeferredPackage
    sys.modules[name] = package
