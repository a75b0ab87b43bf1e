"""What the Library asks to be run: which experiment, with which settings, and how that differs from the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
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
    setup: LlamaSetup = field(default_factory=LlamaSetup)
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


def decode_request(planned_n_ctx: int | None, n_gen: int) -> RunRequest:
    """Return a decode of `n_gen` tokens, with the planned n_ctx if they fit in it, else with just enough."""
    settings = DecodeSettings(n_gen)
    needed = whole_steps(settings.n_ctx_needed)
    if planned_n_ctx is None or planned_n_ctx >= needed:
        return RunRequest("decode", settings, LlamaSetup(n_ctx=planned_n_ctx))
    tokens, planned = format_count(n_gen), format_count(planned_n_ctx)
    return RunRequest(
        "decode", settings, notice=f"{tokens} tokens need n_ctx {format_count(needed)}; {planned} was planned"
    )


def search_request() -> RunRequest:
    """Return a search for the largest context."""
    return RunRequest("maxctx", ContextSettings())
