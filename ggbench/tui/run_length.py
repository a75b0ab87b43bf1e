"""The number of tokens that a run decodes, and the n_ctx that it needs for them."""

from __future__ import annotations

from ggbench.experiments.settings import TrialSettings
from ggbench.records.setup import LlamaSetup
from ggbench.units import format_count

LENGTHS = (300, 1_000, 3_000, 10_000)
"""Tokens; the choices that a key cycles through."""


def next_length(n_gen: int) -> int:
    """Return the next longer choice; after the longest, the shortest."""
    return next((length for length in LENGTHS if length > n_gen), LENGTHS[0])


def run_config(planned_n_ctx: int | None, n_gen: int) -> LlamaSetup:
    """Return a configuration with the planned n_ctx if `n_gen` tokens fit in it, else with the default n_ctx."""
    needed = TrialSettings("bench", n_gen=n_gen).n_ctx
    return LlamaSetup(n_ctx=planned_n_ctx if planned_n_ctx is not None and planned_n_ctx >= needed else None)


def n_ctx_notice(planned_n_ctx: int | None, n_gen: int) -> str:
    """Return a notice if a run needs a larger n_ctx than the planned one; empty if it does not, or none was planned."""
    needed = TrialSettings("bench", n_gen=n_gen).n_ctx
    if planned_n_ctx is None or planned_n_ctx >= needed:
        return ""
    return f"{format_count(n_gen)} tokens need n_ctx {format_count(needed)}; {format_count(planned_n_ctx)} was planned"
