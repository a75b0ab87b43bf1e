"""What the Library asks to be run: which experiment, with which settings, and how that differs from the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ggbench.records.context import ContextSettings
from ggbench.records.decode import DecodeSettings
from ggbench.records.run import Settings
from ggbench.records.setup import LlamaSetup, whole_steps
from ggbench.units import format_count

if TYPE_CHECKING:
    from ggbench.catalog.selector import Target
    from ggbench.recording.experiment import Job

LENGTHS = (300, 1_000, 3_000, 10_000)
"""Tokens; the choices that a key cycles through."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One experiment, to be carried out on any number of targets."""

    kind: str
    """Of the experiment."""
    settings: Settings
    setup: LlamaSetup
    notice: str = ""
    """How it differs from what was planned; empty where it does not."""

    def jobs(self, targets: Sequence[Target]) -> tuple[Job, ...]:
        """Return one job for each target."""
        from ggbench.experiments.registry import experiment_of
        from ggbench.recording.experiment import Job

        experiment = experiment_of(self.kind)
        return tuple(Job(experiment, target, self.setup, self.settings) for target in targets)


def next_length(n_gen: int) -> int:
    """Return the next longer choice; after the longest, the shortest."""
    return next((length for length in LENGTHS if length > n_gen), LENGTHS[0])


def decode_request(setup: LlamaSetup, n_gen: int) -> RunRequest:
    """Return a decode of `n_gen` tokens, with the planned n_ctx of the setup if they fit in it, else just enough."""
    settings = DecodeSettings(n_gen)
    needed, planned = whole_steps(settings.n_ctx_needed), setup.n_ctx
    if planned is None or planned >= needed:
        return RunRequest("decode", settings, setup)
    notice = f"{format_count(n_gen)} tokens need n_ctx {format_count(needed)}; {format_count(planned)} was planned"
    return RunRequest("decode", settings, replace(setup, n_ctx=None), notice)


def search_request(setup: LlamaSetup) -> RunRequest:
    """Return a search for the largest context; the planned n_ctx does not bound it."""
    return RunRequest("maxctx", ContextSettings(), replace(setup, n_ctx=None))
