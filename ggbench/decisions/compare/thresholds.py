"""Check whether runs are worse than the first by more than a limit allows, by the interval of the ratio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from ggbench.decisions.compare.comparison import ComparedFigure, Comparison
from ggbench.errors import UsageError
from ggbench.show import letter
from ggbench.show.metric import Concern
from ggbench.show.words import say
from ggbench.stats.intervals import Interval
from ggbench.units import format_number

State = Literal["exceeded", "kept", "undecided"]


class _Limit(NamedTuple):
    concern: Concern
    word: str
    hint: str


LIMITS: Mapping[str, _Limit] = {
    "--fail-if-slower": _Limit(
        "speed",
        "slower",
        "compare runs of one kind over the same lengths, with 64 tokens or more, or prompts with --repeat 3",
    ),
    "--fail-if-larger": _Limit("memory", "larger", "compare completed runs with the same --n-ctx"),
    "--fail-if-worse": _Limit(
        "quality", "worse", "compare runs of ggbench quality over the same text, chunks and base"
    ),
}


class LimitCheck(msgspec.Struct, frozen=True):
    """One figure of one run compared with the first, and a limit."""

    limit: str
    """Name of the option."""
    share: float
    """The limit, as a share of the first run's value."""
    letter: str
    """The run's."""
    metric: str
    state: State
    worse_by: float
    """Share of the first run's value by which it is worse; negative if it is better."""
    worse_by_ci95: Interval | None
    """Null if there can be no verdict."""
    message: str
    """`slower than --fail-if-slower 5.0 %: speed of b against a, 0.59 times (0.53–0.65)`."""


def check_limits(comparison: Comparison, limits: Mapping[str, float]) -> tuple[LimitCheck, ...]:
    """Return a check for every run but the first, every limit (by option name) and every figure it limits.

    Raises UsageError if no figure with an interval could decide a limit.
    """
    checks: list[LimitCheck] = []
    for option, share in limits.items():
        concern, hint = LIMITS[option].concern, LIMITS[option].hint
        lines = [line for line in comparison.stated if line.concern == concern]
        found = [check for line in lines for check in _checked(option, share, line, comparison.names)]
        if not found:
            why = " ".join(line.verdict for line in lines) or f"the runs have no comparable {concern}"
            raise UsageError(f"{option} cannot be checked: {why}", hint)
        checks += found
    return tuple(checks)


def _checked(option: str, share: float, line: ComparedFigure, names: Sequence[str]) -> list[LimitCheck]:
    checks = []
    for run, apart in enumerate(line.versus):
        if apart is None:
            continue
        sign = -1 if line.more_is_better else 1
        ends = None
        if apart.ratio_ci95 is not None:
            least, most = sorted(sign * (end - 1) for end in apart.ratio_ci95)
            ends = least, most
        state = _state(ends, share)
        message = say(
            f"compare.limit_{state}",
            worse=LIMITS[option].word,
            limit=f"{option} {format_number(share * 100, 2)} %",
            topic=line.topic,
            name=names[run],
            first=names[0],
            found=apart.text,
            why=f"; {apart.doubt_text}" if apart.doubt else "",
        )
        checks.append(
            LimitCheck(option, share, letter(run), line.metric, state, sign * (apart.ratio - 1), ends, message)
        )
    return checks


def _state(ends: Interval | None, share: float) -> State:
    if ends is None or ends[0] <= share < ends[1]:
        return "undecided"
    return "exceeded" if ends[0] > share else "kept"
