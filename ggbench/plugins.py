"""Find engines, experiments and presenters, which are folders, by name."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
import re
from typing import Any

from ggbench.errors import StoreError

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


def load_plugin(package: str, name: str, module: str, what: str) -> Any:  # noqa: ANN401 - the caller knows its type
    """Return the module `module` of the folder `name` of `package`.

    Raises StoreError, calling it `what`, if this ggbench has none: the name may come from a file of another version.
    """
    if _NAME.fullmatch(name):
        path = f"{package}.{name}.{module}"
        try:
            return importlib.import_module(path)
        except ModuleNotFoundError as error:
            if error.name not in (path, f"{package}.{name}"):
                raise
    raise StoreError(f"this ggbench has no {what} {name!r}", "upgrade ggbench to read the run")


def plugin_names(package: str, module: str = "") -> tuple[str, ...]:
    """Return the folders of `package`, sorted; only those with a module `module` if it is given."""
    return _names_in(package, tuple(importlib.import_module(package).__path__), module)


@functools.cache
def _names_in(package: str, folders: tuple[str, ...], module: str) -> tuple[str, ...]:
    names = sorted(each.name for each in pkgutil.iter_modules(folders) if each.ispkg)
    return tuple(name for name in names if not module or importlib.util.find_spec(f"{package}.{name}.{module}"))
