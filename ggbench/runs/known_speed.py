"""How fast a quant is on one machine, by the best that is known of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ggbench.stats.intervals import Expected

SpeedBasis = Literal["measured", "forecast", "other runs", "bound"]
"""From the surest: runs of this very quant; twins of its layers; the share of the bound that this machine's other runs
reach; the memory's bandwidth alone."""


@dataclass(frozen=True, slots=True)
class KnownSpeed:
    """Latency of a step by position, and time of a prompt by its length, each with a 95 % interval.

    Of a `bound` the value is the least that is possible, and the interval is open: `high` is infinite.
    """

    basis: SpeedBasis
    source: str
    """For people: `run 12`, `twins of 2 and 6 of 32 layers`."""
    step_ms: tuple[tuple[int, Expected], ...]
    """By rising position; at least two."""
    prefill_ms: tuple[tuple[int, Expected], ...] = ()
    """By rising length of a prompt that is read from an empty context; empty where unknown."""
    is_steady: bool = True
    """Whether the machine was while the steps were measured."""


@dataclass(frozen=True, slots=True)
class RunSpeed:
    """What one run says of the speed of one sequence; as `KnownSpeed`, but either part may be empty."""

    basis: SpeedBasis
    source: str
    step_ms: tuple[tuple[int, Expected], ...] = ()
    prefill_ms: tuple[tuple[int, Expected], ...] = ()
    reach: int | None = None
    """The last position that was measured, or forecast; None where no step was."""
    is_steady: bool = True
    """Whether the machine was, as far as the run could see."""
