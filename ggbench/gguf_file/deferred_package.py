"""Packages whose `__init__` runs at its first use, so that one of their modules can be imported without the rest.

`import llama_cpp.llama_cpp`, the C functions, runs llama_cpp's `__init__` first, which imports chat templates, a cache
and many types: 40 ms of the 50, for things that ggbench never calls. `import gguf.constants` imports numpy and more in
the same way. Python can skip a package's `__init__` only if `sys.modules` already holds the package, so an unexecuted
one is put there; asking it for a name that it lacks runs its `__init__` and makes it an ordinary package.
importlib's own LazyLoader does not do: importing a submodule reads `__path__`, which makes it load the package.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType


class _DeferredPackage(ModuleType):
    """A package that has its path and spec but has not run its code."""

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
    """Run the package's code, which makes it an ordinary module."""
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
    """Defer a top-level package's code to the first use of a name that it defines; its modules import as usual.

    Does nothing if the package is already imported, or is not installed: then the import itself fails.
    """
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        return
    package = importlib.util.module_from_spec(spec)
    package.__class__ = _DeferredPackage
    sys.modules.setdefault(name, package)  # another thread may have been faster
