"""Check whether runs are worse than the first by more than a limit allows, by the interval of the ratio."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

from ggbench.decisions.compare.comparison import ComparedLine, Comparison
from ggbench.decisions.compare.estimates import Versus
from ggbench.errors import UsageError
from ggbench.show.metric import Concern
from ggbench.stats.intervals import Interval
from ggbench.text import in_words
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
    """One metric of one run compared with the first, and a limit."""

    option: str
    share: float
    """The limit, as a share of the first run's value."""
    run: int
    key: str
    topic: str
    state: State
    worse_by: float
    """Share of the first run's value by which it is worse; negative if it is better."""
    worse_by_ci95: Interval
    found: str
    """The ratio to the first run's value, or why it is undecided whatever the ratio."""

    def message(self, comparison: Comparison) -> str:
        """`slower than --fail-if-slower 5.0 %: speed of b against a, 0.59 ±0.06 times`."""
        verdict = {
            "exceeded": f"{LIMITS[self.option].word} than",
            "kept": "within",
            "undecided": "undecided by",
        }
        names = f"{comparison.names[self.run]} against {comparison.names[0]}"
        limit = f"{self.option} {format_number(self.share * 100, 2)} %"
        return f"{verdict[self.state]} {limit}: {self.topic} of {names}, {self.found}"


def check_limits(comparison: Comparison, limits: Mapping[str, float]) -> tuple[LimitCheck, ...]:
    """Return a check for every run but the first, every limit (by option name) and every metric it limits.

    Raises UsageError if no metric with an interval could decide a limit.
    """
    checks: list[LimitCheck] = []
    for option, share in limits.items():
        concern, hint = LIMITS[option].concern, LIMITS[option].hint
        lines = [line for line in comparison.stated if line.concern == concern]
        found = [check for line in lines for check in _checked(option, share, line)]
        if not found:
            verdicts = [f"{line.topic}: {line.verdict}" for line in lines]
            why = in_words(verdicts) if verdicts else f"the runs have no comparable {concern}"
            raise UsageError(f"{option} cannot be checked: {why}", hint)
        checks += found
    return tuple(checks)


def _checked(option: str, share: float, line: ComparedLine) -> list[LimitCheck]:
    checks = []
    for run, apart in enumerate(line.versus):
        if apart is None or apart.ratio is None or apart.ratio_ci95 is None:
            continue
        low, high = apart.ratio_ci95
        by, least, most = apart.ratio - 1, low - 1, high - 1
        if line.more_is_better:
            by, least, most = -by, -most, -least
        state, found = _state(apart, least, most, share), apart.disturbed or apart.text
        checks.append(LimitCheck(option, share, run, line.key, line.topic, state, by, (least, most), found))
    return checks


def _state(apart: Versus, least: float, most: float, share: float) -> State:
    if apart.disturbed:
        return "undecided"
    if least > share:
        return "exceeded"
    return "kept" if most <= share else "undecided"
