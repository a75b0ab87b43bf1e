"""Find engines, experiments and presenters by name: folders of their package, or of `ggbench.extras`.

A folder of `ggbench.extras` is whatever its modules make it: with `engine` an engine, with `models` one that has a
format of its own.
"""

from __future__ import annotations

import functools
import importlib
import re
from pathlib import Path
from typing import Any

from ggbench.errors import StoreError

_EXTRAS = "ggbench.extras"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


def load_plugin(package: str, name: str, module: str, what: str) -> Any:  # noqa: ANN401 - the caller knows its type
    """Return the module `module` of the folder `name` of `package` or of the extras.

    Raises StoreError, calling it `what`, if this ggbench has none: the name may come from a file of another version.
    """
    folders = (package, _EXTRAS) if _NAME.fullmatch(name) else ()
    for folder in folders:
        path = f"{folder}.{name}.{module}"
        try:
            return importlib.import_module(path)
        except ModuleNotFoundError as error:
            if error.name not in (path, f"{folder}.{name}"):
                raise
    raise StoreError(f"this ggbench has no {what} {name!r}", "upgrade ggbench to read the run")


def plugin_names(package: str, module: str) -> tuple[str, ...]:
    """Return the folders of `package` and of the extras that have this module, sorted."""
    folders = [*importlib.import_module(package).__path__, *importlib.import_module(_EXTRAS).__path__]
    return _names_in(tuple(folders), module)


@functools.cache
def _names_in(folders: tuple[str, ...], module: str) -> tuple[str, ...]:
    return tuple(sorted(path.parent.name for folder in folders for path in Path(folder).glob(f"*/{module}.py")))
