"""Experiments by kind: one module each in this folder, found by its name."""

from __future__ import annotations

from ggbench.parts import find_part
from ggbench.recording.experiment import Experiment


def experiment_of(kind: str) -> Experiment:
    """The experiment that makes runs of this kind. Raises StoreError for one that this ggbench does not have."""
    found: Experiment = find_part("ggbench.experiments", kind, "EXPERIMENT", "experiment").EXPERIMENT
    return found
