"""Experiments by kind: one folder each, found by its name."""

from __future__ import annotations

from ggbench.plugins import load_plugin
from ggbench.runs.experiment import Experiment


def experiment_of(kind: str) -> Experiment:
    """The experiment that makes runs of this kind. Raises StoreError for one that this ggbench does not have."""
    found: Experiment = load_plugin("ggbench.experiments", kind, "measure", "experiment").EXPERIMENT
    return found
