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


def defer_package(name: str) -> None:
    """Defer a top-level package's code to the first use of a name that it defines; its modules import as usual.

    Does nothing if the package is already imported, or is not installed: then the import itself fails.
    """
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        return
    loader, package = spec.loader, importlib.util.module_from_spec(spec)

    def run() -> None:
        for hook in hooks:  # while the code runs, a name that is not there yet is an error, as in any import
            vars(package).pop(hook, None)
        try:
            loader.exec_module(package)
        except BaseException:
            vars(package).update(hooks)
            raise

    def get(attribute: str) -> object:
        run()
        return getattr(package, attribute)

    def names() -> list[str]:
        run()
        return dir(package)

    hooks = {"__getattr__": get, "__dir__": names}
    vars(package).update(hooks)
    sys.modules.setdefault(name, package)  # another thread may have been faster
