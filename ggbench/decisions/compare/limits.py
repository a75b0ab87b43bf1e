"""Check whether runs are worse than the first by more than a limit allows, by the interval of the difference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

from ggbench.decisions.compare.comparison import MOST_REPEATS, ComparedLine, Comparison, repeats_needed
from ggbench.errors import UsageError
from ggbench.show.metric import Concern
from ggbench.stats.intervals import Interval
from ggbench.text import in_words
from ggbench.units import format_number, format_ratio, format_signed_percent

State = Literal["exceeded", "kept", "undecided"]


class _Limit(NamedTuple):
    concern: Concern
    word: str
    better: str
    times: tuple[str, str]
    """How a run is that has more of what counts against it, and one that has less, after `2.5 times`."""
    hint: str


LIMITS: Mapping[str, _Limit] = {
    "--fail-if-slower": _Limit(
        "speed",
        "slower",
        "faster",
        ("as slow", "as fast"),
        "compare runs of one kind over the same lengths, with 64 tokens or more, or prompts with --repeat 3",
    ),
    "--fail-if-larger": _Limit(
        "memory", "larger", "smaller", ("as large", "as small"), "compare completed runs with the same --n-ctx"
    ),
    "--fail-if-worse": _Limit(
        "quality",
        "worse",
        "better",
        ("as bad", "as good"),
        "compare runs of ggbench quality over the same text, chunks and base",
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
    repeats_needed: int | None
    """Runs of each needed to decide, if the difference stays the same; for quality, the factor of chunks. None if
    decided, or if not even a hundred would be enough."""
    times: tuple[float, Interval] | None = None
    """How many times as bad the run is, or as good if `worse_by` is negative; None if surely less than twice."""
    disturbed: str = ""
    """Why it is undecided, as `Versus.disturbed`, whatever the interval."""

    @property
    def apart(self) -> str:
        """`+3.1 % (+2.0 to +4.2 %) slower`, `7.9 (7.1–8.8) times as fast`."""
        limit, is_better = LIMITS[self.option], self.worse_by < 0
        if self.times is not None:
            return f"{format_ratio(self.times[0], *self.times[1])} times {limit.times[is_better]}"
        if not is_better:
            return f"{format_signed_percent(self.worse_by, *self.worse_by_ci95)} {limit.word}"
        least, most = self.worse_by_ci95
        return f"{format_signed_percent(-self.worse_by, -most, -least)} {limit.better}"

    def message(self, comparison: Comparison) -> str:
        concern, word = LIMITS[self.option].concern, LIMITS[self.option].word
        verdict = {"exceeded": f"{word} than", "kept": "within", "undecided": "undecided by"}[self.state]
        names = f"{comparison.names[self.run]} against {comparison.names[0]}"
        said = (
            f"{verdict} {self.option} {format_number(self.share * 100, 2)} %: {self.topic} of {names} is {self.apart}"
        )
        if self.state != "undecided":
            return said
        if self.disturbed:
            return f"{said}, but {self.disturbed}: measure again on a quiet machine"
        needed = self.repeats_needed
        if needed is None:
            return f"{said}; even {MOST_REPEATS} times the runs or chunks would not decide it"
        if concern == "quality":
            return f"{said}; about {needed} times as many chunks would decide this limit"
        n_more = needed - comparison.n_runs_of(self.run)
        more = comparison.more_runs if n_more > 1 else comparison.more_runs.replace("runs", "run", 1)
        return f"{said}; about {n_more} {more} would decide this limit"


def check_limits(comparison: Comparison, limits: Mapping[str, float]) -> tuple[LimitCheck, ...]:
    """Return a check for every run but the first, every limit (by option name) and every metric it limits.

    Raises UsageError if no metric with an interval could decide a limit.
    """
    checks: list[LimitCheck] = []
    for option, share in limits.items():
        concern, hint = LIMITS[option].concern, LIMITS[option].hint
        lines = [line for line in comparison.stated if line.concern == concern]
        found = [check for line in lines for check in _checked(option, share, line, comparison)]
        if not found:
            verdicts = dict.fromkeys(f"{line.topic}: {line.verdict}" for line in lines if line.verdict)
            why = in_words(list(verdicts)) if verdicts else f"the runs have no comparable {concern}"
            raise UsageError(f"{option} cannot be checked: {why}", hint)
        checks += found
    return tuple(checks)


def _checked(option: str, share: float, line: ComparedLine, comparison: Comparison) -> list[LimitCheck]:
    checks = []
    for run, found in enumerate(line.versus):
        if found is None or found.ratio is None or found.ratio_ci95 is None:
            continue
        low, high = found.ratio_ci95
        by, least, most = found.ratio - 1, low - 1, high - 1
        times = None
        if found.is_large:
            times = max(found.ratio, 1 / found.ratio), (low, high) if found.ratio >= 1 else (1 / high, 1 / low)
        if line.more_is_better:
            by, least, most = -by, -most, -least
        state: State = "exceeded" if least > share else "kept" if most <= share else "undecided"
        if found.disturbed:
            state = "undecided"
        present = 1 if line.concern == "quality" else comparison.n_runs_of(run)
        half = by - least if by > share else most - by
        is_open = state == "undecided" and not found.disturbed
        needed = repeats_needed(abs(by - share), half, present) if is_open else None
        ends = least, most
        checks.append(
            LimitCheck(option, share, run, line.key, line.topic, state, by, ends, needed, times, found.disturbed)
        )
    return checks
