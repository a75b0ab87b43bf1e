"""Engines, experiments and presenters are modules found by their names; this is the one place that looks for them."""

from __future__ import annotations

import importlib
import re
from typing import Any

from ggbench.errors import StoreError

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


def find_part(package: str, name: str, attribute: str, what: str) -> Any:  # noqa: ANN401 - the caller knows its type
    """Return the module `name` of `package`, which has that attribute.

    Raises StoreError, calling it `what`, where this ggbench has none: the name may come from a file of another version.
    """
    module: object = None
    if _NAME.fullmatch(name):
        try:
            module = importlib.import_module(f"{package}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{package}.{name}":
                raise
    if not hasattr(module, attribute):
        raise StoreError(f"this ggbench has no {what} {name!r}", "upgrade ggbench to read the run")
    return module
