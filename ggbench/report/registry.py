"""Presenters by kind: one module each in `ggbench.report.kinds`, found by its name."""

from __future__ import annotations

import importlib
import re

from ggbench.errors import StoreError
from ggbench.report.presenter import Presenter

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_REGISTERED: dict[str, Presenter] = {}


def register(presenter: Presenter) -> None:
    """Add a presenter that is not a module of that folder."""
    _REGISTERED[presenter.kind] = presenter


def presenter_of(kind: str) -> Presenter:
    """The presenter of runs of this kind. Raises StoreError for one that this ggbench does not have."""
    found: object = _REGISTERED.get(kind)
    if found is None and _NAME.fullmatch(kind):
        name = f"ggbench.report.kinds.{kind}"
        try:
            found = getattr(importlib.import_module(name), "PRESENTER", None)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
    if isinstance(found, Presenter):
        return found
    raise StoreError(f"this ggbench cannot show a run of kind {kind!r}", "upgrade ggbench to read the run")
