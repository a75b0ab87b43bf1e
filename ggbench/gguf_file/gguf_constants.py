"""The constants of the gguf package, imported at their first use and without the rest of the package.

`gguf_constants.GGML_QUANT_SIZES` is that of `gguf.constants`, and so on. Importing gguf as a whole takes 90 ms,
for numpy, yaml and an HTTP client; its constants alone take 6 ms, and `ggbench --help` and `ggbench models` need
neither. Of llama_cpp's 50 ms, 40 are for things that ggbench never calls.

Python skips a package's `__init__` only if the package is already in `sys.modules`, so an unexecuted one is put there;
accessing a missing name runs its `__init__` and makes it an ordinary package. importlib's own LazyLoader does not work:
importing a submodule reads `__path__`, which makes it load the package.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any


def __getattr__(name: str) -> Any:  # noqa: ANN401 - the constants have types of many kinds
    if name.startswith("__"):  # probed by the import system
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    defer_package("gguf")
    import gguf.constants

    value = getattr(gguf.constants, name)
    globals()[name] = value
    return value


def defer_package(name: str) -> None:
    """Defer a top-level package's code until a name that it defines is first used; its modules import as usual.

    Does nothing if the package is already imported, or is not installed: then the import itself fails.
    """
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        return
    loader, package = spec.loader, importlib.util.module_from_spec(spec)

    def run_and_get(attribute: str) -> object:
        del vars(package)[
            "__getattr__"
        ]  # while the code runs, a name not yet defined is an error, as in any import
        loader.exec_module(package)
        return getattr(package, attribute)

    vars(package)["__getattr__"] = run_and_get
    sys.modules.setdefault(name, package)  # another thread may have been faster
