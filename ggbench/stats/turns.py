"""Settings measured in turns: the order within each turn, and the ratio of two of them from the ratios within turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ggbench.stats.intervals import Estimate, geometric_mean

_T = TypeVar("_T")

FEWEST_TURNS = 4
"""Fewest turns whose ratios give an interval."""

_SERIAL = 1.2
"""The factor that widens the interval of ratios in turns: the order alternates, so noise that lasts makes neighbouring
turns agree. With correlation r from run to run, the variance of the mean is 1 + r (1 - r) / (1 + r^2) times that of
independent turns, at most 1.21, and four turns show up to 7 % less of it. In simulations with noise of heavy tails or
bursts too, a setting then beats its equal in 1 to 5.5 % of comparisons."""


_BESIDE_OTHERS = 2.0
"""The factor that also widens it if other programs used the CPU. It is our choice; see "Builds in turns" in
scripts/EVIDENCE.md."""


def rotated(members: Sequence[_T], turn: int) -> list[_T]:
    """Return the members of a turn in order, starting with another in each turn, so that none is always first."""
    return [members[(turn + index) % len(members)] for index in range(len(members))]


def ratio_of_turns(ratios: Sequence[float], *, beside_others: bool = False) -> Estimate | None:
    """Return the mean of the ratios within turns; None for fewer than four turns.

    A slow machine slows both of a turn, so the ratios differ less than the values do. The interval is Student's, of the
    logarithms, with a degree of freedom less than turns, and widened, more so if other programs used the CPU.
    """
    if len(ratios) < FEWEST_TURNS:
        return None
    mean, factor = geometric_mean(ratios), _SERIAL * _BESIDE_OTHERS if beside_others else _SERIAL
    low, high = (mean.value * (end / mean.value) ** factor for end in (mean.low, mean.high))
    return Estimate(mean.value, low, high)
