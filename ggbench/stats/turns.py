"""Settings measured in turns: the order within each turn, and the ratio of two of them from the ratios within turns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from ggbench.stats.intervals import FEWEST_PAIRS, Ratio, paired_ratio

_T = TypeVar("_T")

FEWEST_TURNS = FEWEST_PAIRS


def ordered(members: Sequence[_T], turn: int) -> Sequence[_T]:
    """Return the members of a turn, counted from 0, in order, backwards in every other pair of turns.

    Which pairs are backwards is the sequence of Thue and Morse, so that each member comes before another in half of 4,
    8, 16 turns and no steady drift favours one. Two neighbouring turns agree in their order, as noise that lasts from
    run to run makes the ratios of such turns differ more, and those of opposite ones less.
    """
    is_backwards = (turn // 2).bit_count() % 2
    return members[::-1] if is_backwards else members


def ratio_of_turns(ratios: Sequence[float]) -> Ratio | None:
    """Return the mean of the ratios within turns; None for fewer than four turns.

    A slow machine slows both of a turn, so the ratios differ less than the values do.
    """
    return paired_ratio(list(map(math.log, ratios)))
