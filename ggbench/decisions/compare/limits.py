"""Whether runs are slower, larger or worse than the first by more than a limit: only where the interval says so."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from ggbench.decisions.compare.comparison import ComparedLine, Comparison
from ggbench.errors import UsageError
from ggbench.show.metric import Concern
from ggbench.stats.intervals import Interval
from ggbench.text import in_words
from ggbench.units import counted, format_number, format_signed_percent

State = Literal["exceeded", "kept", "undecided"]

LIMITS: Mapping[str, Concern] = {
    "--fail-if-slower": "speed", "--fail-if-larger": "memory", "--fail-if-worse": "quality",
}  # fmt: skip
_WORDS: Mapping[Concern, str] = {"speed": "slower", "memory": "larger", "quality": "worse"}
_MOST_REPEATS = 100


class LimitCheck(msgspec.Struct, frozen=True):
    """One metric of one run beside the first, and a limit."""

    option: str
    share: float
    """The limit, of the first run's value."""
    run: int
    """Index of the run."""
    key: str
    """Of the metric."""
    topic: str
    concern: Concern
    state: State
    worse_by: float
    """By how much of the first run's value it is worse; below zero where it is better."""
    worse_by_ci95: Interval
    repeats_needed: int | None
    """Runs of each that would decide it if the difference stayed as it is, where only the load differs; for a text, how
    many times as many chunks. None where it is decided, and where not even a hundred would."""

    def message(self, comparison: Comparison) -> str:
        """Return one line: which run, by how much, and what would decide it."""
        name = f"{_named(comparison, self.run)} beside {_named(comparison, 0)}"
        by = format_signed_percent(self.worse_by, *self.worse_by_ci95)
        limit = f"{format_number(self.share * 100, 2)} %"
        word = _WORDS[self.concern]
        if self.state == "exceeded":
            return f"{word} than {self.option} {limit}: {self.topic} of {name} is {by} {word}"
        if self.state == "kept":
            return f"within {self.option} {limit}: {self.topic} of {name} is {by} {word}"
        return f"undecided by {self.option} {limit}: {self.topic} of {name} is {by} {word}; {self._more()}"

    def _more(self) -> str:
        if self.repeats_needed is None:
            return f"it is too near the limit for {_MOST_REPEATS} times as much to decide it"
        if self.concern == "quality":
            return f"about {self.repeats_needed} times as many chunks would decide it"
        return f"about {counted(self.repeats_needed, 'run')} of each, compared with --average, would decide it"


def check_limits(comparison: Comparison, limits: Mapping[str, float]) -> tuple[LimitCheck, ...]:
    """Return a check of each further run for each limit, by the option's name, and each metric that it is on.

    Speed by depth counts where no other speed compares. Raises UsageError where no metric with an interval can ever
    decide a limit.
    """
    checks: list[LimitCheck] = []
    for option, share in limits.items():
        concern = LIMITS[option]
        lines = [line for line in comparison.stated if line.concern == concern]
        found = [check for line in lines for check in _checked(option, concern, share, line)]
        if not found:
            raise UsageError(f"nothing decides {option}: {_why(lines, concern)}", _HINTS[concern])
        checks += found
    return tuple(checks)


_HINTS: Mapping[Concern, str] = {
    "speed": "compare runs of one kind over the same lengths, with 64 tokens or more, or prompts with --repeat 3",
    "memory": "compare completed runs with the same --n-ctx",
    "quality": "compare runs of ggbench quality over the same text, chunks and base",
}


def _checked(option: str, concern: Concern, share: float, line: ComparedLine) -> list[LimitCheck]:
    checks = []
    for run, found in enumerate(line.versus):
        if found is None or found.ratio is None or found.ratio_ci95 is None:
            continue
        low, high = found.ratio_ci95
        worse = found.ratio - 1, low - 1, high - 1
        if line.more_is_better:
            worse = 1 - found.ratio, 1 - high, 1 - low
        by, least, most = worse
        state: State = "exceeded" if least > share else "kept" if most <= share else "undecided"
        needed = _repeats_needed(by, least, most, share) if state == "undecided" else None
        checks.append(LimitCheck(option, share, run, line.key, line.topic, concern, state, by, (least, most), needed))
    return checks


def _repeats_needed(by: float, least: float, most: float, share: float) -> int | None:
    """The interval of a mean shrinks with the root of what it is of; `by` has to be half of it away from the limit."""
    distance, half = abs(by - share), by - least if by > share else most - by
    if not distance or not math.isfinite(half):
        return None
    needed = math.ceil((half / distance) ** 2)
    return needed if needed <= _MOST_REPEATS else None


def _why(lines: Sequence[ComparedLine], concern: Concern) -> str:
    verdicts = dict.fromkeys(f"{line.topic}: {line.verdict}" for line in lines if line.verdict)
    return in_words(list(verdicts)) if verdicts else f"the runs have no {concern} to compare"


def _named(comparison: Comparison, index: int) -> str:
    name, run_id = comparison.names[index], comparison.run_ids[index]
    return name if run_id is None or name.endswith(f"(run {run_id})") else f"{name} (run {run_id})"
