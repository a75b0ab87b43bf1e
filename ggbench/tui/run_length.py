"""How many tokens a run decodes, and which n_ctx it takes for them where another was planned."""

from __future__ import annotations

from ggbench.experiments.settings import TrialSettings
from ggbench.records import LoadConfig
from ggbench.units import format_count

LENGTHS = (300, 1_000, 3_000, 10_000)
"""Tokens; those that a key goes through."""


def next_length(n_gen: int) -> int:
    """The next longer of them; after the longest the shortest."""
    return next((length for length in LENGTHS if length > n_gen), LENGTHS[0])


def run_config(planned_n_ctx: int | None, n_gen: int) -> LoadConfig:
    """With the n_ctx that a person planned, where a run of so many tokens has room in it."""
    needed = TrialSettings("bench", n_gen=n_gen).n_ctx
    return LoadConfig(n_ctx=planned_n_ctx if planned_n_ctx is not None and planned_n_ctx >= needed else None)


def n_ctx_words(planned_n_ctx: int | None, n_gen: int) -> str:
    """Why a run takes more than what was planned, in a line; empty where it takes what was planned, or none was."""
    needed = TrialSettings("bench", n_gen=n_gen).n_ctx
    if planned_n_ctx is None or planned_n_ctx >= needed:
        return ""
    return (
        f"{format_count(n_gen)} tokens take n_ctx {format_count(needed)}, not {format_count(planned_n_ctx)} as planned"
    )
