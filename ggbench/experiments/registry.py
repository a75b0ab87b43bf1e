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
    if kind in _REGISTERED:
        return _REGISTERED[kind]
    if _NAME.fullmatch(kind):
        try:
            module = importlib.import_module(f"ggbench.experiments.{kind}")
        except ModuleNotFoundError as error:
            if error.name != f"ggbench.experiments.{kind}":
                raise
        else:
            found = getattr(module, "EXPERIMENT", None)
            if isinstance(found, Experiment):
                return found
    raise StoreError(f"this ggbench has no experiment {kind!r}", "upgrade ggbench to read the run")
