"""Experiments by kind: one module each in this folder, found by its name."""

from __future__ import annotations

import importlib
import re

from ggbench.errors import StoreError
from ggbench.recording.experiment import Experiment

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_REGISTERED: dict[str, Experiment] = {}


def register(experiment: Experiment) -> None:
    """Add an experiment that is not a module of this folder."""
    _REGISTERED[experiment.kind] = experiment


def experiment_of(kind: str) -> Experiment:
    """The experiment that makes runs of this kind. Raises StoreError for one that this ggbench does not have."""
    found: object = _REGISTERED.get(kind)
    if found is None and _NAME.fullmatch(kind):
        name = f"ggbench.experiments.{kind}"
        try:
            found = getattr(importlib.import_module(name), "EXPERIMENT", None)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
    if isinstance(found, Experiment):
        return found
    raise StoreError(f"this ggbench has no experiment {kind!r}", "upgrade ggbench to read the run")
