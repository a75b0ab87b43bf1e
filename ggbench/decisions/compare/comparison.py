"""Compare measured runs: which one is better, in which metric and by how much, and what else differs.

A number from one run is an estimate that changes with every load of the model. So a run is called better only if the
interval of the ratio, including the spread between loads, excludes 1. Values without intervals have no verdict.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from ggbench.decisions.compare.differences import caveats, differences_of, letters
from ggbench.decisions.compare.estimates import Column, Estimated, RunSpreads, Versus, estimates, versus
from ggbench.runs.summary import QuantSummary
from ggbench.show import UNKNOWN, letter
from ggbench.show.metric import Concern, Metric, depth_key, depth_metrics, vary
from ggbench.show.names import column_names, quant_names
from ggbench.show.presenter import metrics_of
from ggbench.stats.intervals import Interval
from ggbench.text import in_words

_ALIKE = 1.1
"""Factor, either way, within which the whole interval of a ratio must lie to say that there is no difference."""


class Better(msgspec.Struct, frozen=True):
    run: int
    over: int
    """The next best."""
    ratio: float | None
    """Ratio of the best value to the next best; None if that is zero."""
    ratio_ci95: Interval | None
    """None if the values are exact or there is no ratio."""
    gain: str
    """`1.32 ±0.04 times`, `48.9 MiB less`; empty without a ratio."""

    def text(self, names: Sequence[str]) -> str:
        """`b is better than a, 1.32 ±0.04 times`; of three or more runs, a is the next best."""
        gain = f", {self.gain}" if self.gain else ""
        return f"{names[self.run]} is better than {names[self.over]}{gain}"


class Tied(msgspec.Struct, frozen=True):
    runs: tuple[int, ...]
    behind: tuple[int, ...]
    """The runs that are worse than one of the best."""
    found: str
    """`no difference`, `no difference over 10 %` or `undecided`."""
    ratio: str = ""
    """Ratio of the second of two runs to the first; empty for more than two, and for exact values."""
    disturbed: str = ""
    """Disturbances of the runs, like `Versus.disturbed`."""

    def text(self, names: Sequence[str]) -> str:
        """`undecided between a and b; worse: c`, `undecided, b 1.01 (0.65–1.56) times`."""
        if self.behind:
            tied, worse = (in_words([names[run] for run in runs]) for runs in (self.runs, self.behind))
            return f"{self.found} between {tied}; worse: {worse}"
        if self.disturbed:
            return f"{self.found}, {self.disturbed}"
        return f"{self.found}, {names[1]} {self.ratio}" if self.ratio else self.found


class NotCompared(msgspec.Struct, frozen=True):
    """Why runs with a value are not compared."""

    reason: str
    runs: tuple[int, ...]

    def text(self, names: Sequence[str]) -> str:
        """`only a bound (a and b)`."""
        return f"{self.reason} ({in_words([names[run] for run in self.runs])})"


Reason: TypeAlias = Better | Tied | NotCompared


class ComparedLine(msgspec.Struct, frozen=True):
    """One metric of every run. Runs are named by their indices."""

    key: str
    header: str
    unit: str
    """Empty if the texts contain their units."""
    topic: str
    """Name in sentences; empty if the metric follows from another."""
    texts: tuple[str, ...]
    """One text per run, an em dash if unknown."""
    values: tuple[float | None, ...]
    ci95: tuple[Interval | None, ...]
    """Interval of each value, with the spread between loads; None if it is not compared."""
    better: tuple[bool, ...]
    """For each run, whether it is better than another and no other is better."""
    more_is_better: bool
    concern: Concern
    reasons: tuple[Reason, ...]
    """The verdict, then why runs are left out; empty if fewer than two values are known."""
    versus: tuple[Versus | None, ...]
    """Each run compared with the first; None for the first itself, and if either is not compared."""

    @property
    def compared(self) -> tuple[int, ...]:
        return tuple(index for index, ends in enumerate(self.ci95) if ends is not None)

    @property
    def verdict(self) -> str:
        return self.verdict_on([letter(index) for index in range(len(self.texts))])

    def verdict_on(self, names: Sequence[str]) -> str:
        """Return the verdict on runs of these names."""
        return "; ".join(each.text(names) for each in self.reasons)


class Comparison(msgspec.Struct, frozen=True):
    """Runs side by side; the others are compared with the first."""

    names: tuple[str, ...]
    """The shortest that distinguish all of them. Printable."""
    run_ids: tuple[int | None, ...]
    """Number of each column's first run; None if not stored."""
    n_runs: tuple[int, ...]
    """Runs averaged in each column."""
    lines: tuple[ComparedLine, ...]
    depths: tuple[ComparedLine, ...]
    """Speed by tokens in the cache; empty if no run has it."""
    differences: Mapping[str, tuple[str, ...]]
    """Lines by topic, one for each property that differs."""
    warnings: tuple[str, ...]
    """Reasons not to trust or compare a number."""
    asked_depths: frozenset[str]
    """Keys of the depths at which every run was asked to decode."""
    file: str
    """Model and quant, if they are the same for all. Printable."""

    @property
    def is_empty(self) -> bool:
        return not any(line.reasons for line in (*self.lines, *self.depths))

    @property
    def stated(self) -> tuple[ComparedLine, ...]:
        """Lines covered by the conclusion; speed by depth replaces the mean over depths that all were asked for, and a
        speed that cannot be compared.
        """
        lines = tuple(line for line in self.lines if line.topic and line.reasons)
        depths = tuple(line for line in self.depths if len(line.compared) > 1)
        if asked := tuple(line for line in depths if line.key in self.asked_depths):
            return (*asked, *(line for line in lines if line.key != "tok_s"))
        if any(line.concern == "speed" and len(line.compared) > 1 for line in lines):
            return lines
        return (*depths, *lines)

    @property
    def sentences(self) -> list[str]:
        """The verdict on each quantity, those that read the same together. Printable.

        `Speed: q4_0 is better than q8_0, 1.32 ±0.04 times.`
        """
        if self.is_empty:
            return [f"{in_words(self.names)} have no metric in common to compare."]
        topics: dict[str, list[str]] = {}
        for line in self.stated:
            topics.setdefault(line.verdict_on(self.names), []).append(line.topic)
        said = (f"{in_words(of)}: {verdict}." for verdict, of in topics.items())
        return [f"{each[0].upper()}{each[1:]}" for each in said]


def compare_quants(summaries: Sequence[QuantSummary], spreads: RunSpreads | None = None) -> Comparison:
    """Compare two or more runs. Raises StoreError for an experiment unknown to this ggbench."""
    return compare([(summary,) for summary in summaries], spreads)


def compare(columns: Sequence[Column], spreads: RunSpreads | None = None) -> Comparison:
    """Compare columns, each a run or the mean of repeated runs. Raises like `compare_quants`."""
    spreads = spreads or RunSpreads()
    summaries = [column[0] for column in columns]
    kinds = [run.head.kind for summary in summaries for run in summary.runs]
    lines = tuple(_compared(metric, columns, spreads) for metric in metrics_of(kinds, summaries))
    files = {*quant_names([summary.subject for summary in summaries])}
    return Comparison(
        names=column_names(summaries),
        run_ids=tuple(summary.run.run_id for summary in summaries),
        n_runs=tuple(map(len, columns)),
        lines=lines,
        depths=tuple(_compared(metric, columns, spreads) for metric in depth_metrics(summaries)),
        differences=differences_of(summaries),
        warnings=(*caveats(list(map(_least_steady, columns))), *_left_out(lines)),
        asked_depths=frozenset(set.intersection(*map(_asked_depths, summaries))),
        file=files.pop() if len(files) == 1 else "",
    )


def _least_steady(column: Column) -> QuantSummary:
    return next((each for each in column if each.unsteady), column[0])


def _asked_depths(summary: QuantSummary) -> set[str]:
    return {depth_key(each.n_depth) for each in summary.depths}


Pairs: TypeAlias = Mapping[tuple[int, int], Versus]
"""One run compared with another, by their indices."""


def _compared(metric: Metric, columns: Sequence[Column], spreads: RunSpreads) -> ComparedLine:
    found = _comparable(metric, columns, estimates(metric, columns, spreads))
    everyone, pairs = range(len(columns)), _pairs(metric, columns, found)
    beaten = {pair for pair, apart in pairs.items() if apart.is_better(more_is_better=metric.more_is_better)}
    losers = {other for _, other in beaten}
    winners = {one for one, _ in beaten} - losers
    return ComparedLine(
        key=metric.key,
        header=metric.header,
        unit=metric.unit,
        topic=metric.topic,
        texts=tuple(each.text for each in found),
        values=tuple(each.value for each in found),
        ci95=tuple(each.ci95 for each in found),
        better=tuple(one in winners for one in everyone),
        more_is_better=metric.more_is_better,
        concern=metric.concern,
        reasons=_reasons(metric, found, pairs, losers),
        versus=tuple(pairs.get((index, 0)) for index in everyone),
    )


def _comparable(metric: Metric, columns: Sequence[Column], found: Sequence[Estimated]) -> Sequence[Estimated]:
    """Return the estimates, none compared if they are of different things."""
    if not vary(metric.basis, [column[0] for column in columns]):
        return found
    return [replace(each, ci95=None, left_out=metric.other_basis if each.is_known else "") for each in found]


def _pairs(metric: Metric, columns: Sequence[Column], found: Sequence[Estimated]) -> Pairs:
    pairs: dict[tuple[int, int], Versus] = {}
    for one, other in itertools.permutations(range(len(columns)), 2):
        apart = versus(metric, columns, found, one, other)
        if apart is not None:
            pairs[one, other] = apart
    return pairs


def _reasons(metric: Metric, found: Sequence[Estimated], pairs: Pairs, losers: set[int]) -> tuple[Reason, ...]:
    """Return which run is better or which are tied, then why others are not compared; nothing of a single value."""
    if sum(each.is_known for each in found) < 2:
        return ()
    compared = sorted({run for pair in pairs for run in pair})
    best = [index for index in compared if index not in losers]
    behind = [index for index in compared if index in losers]
    reasons: list[Reason] = []
    if len(best) > 1:
        reasons.append(_tied(metric, best, behind, pairs, len(found)))
    elif best:
        reasons.append(_better(metric, best[0], behind, found, pairs))
    return (*reasons, *_not_compared(found))


def _not_compared(found: Sequence[Estimated]) -> list[NotCompared]:
    left_out: dict[str, list[int]] = {}
    for index, each in enumerate(found):
        if each.left_out:
            left_out.setdefault(each.left_out, []).append(index)
    return [NotCompared(why, tuple(runs)) for why, runs in left_out.items()]


def _better(
    metric: Metric, best: int, others: Sequence[int], found: Sequence[Estimated], pairs: Pairs
) -> Better:
    over = sorted(others, key=lambda index: found[index].value or 0.0, reverse=metric.more_is_better)[0]
    lead = pairs[best, over]
    if metric.difference is not None:
        return Better(best, over, lead.ratio, None, metric.difference(abs(lead.difference)))
    return Better(best, over, lead.ratio, lead.ratio_ci95, lead.text)


def _tied(metric: Metric, runs: Sequence[int], behind: Sequence[int], pairs: Pairs, n_columns: int) -> Tied:
    if metric.is_exact:
        return Tied(tuple(runs), tuple(behind), "no difference")
    apart = [pairs[other, one] for one, other in itertools.combinations(runs, 2)]
    found = "no difference over 10 %" if all(map(_is_alike, apart)) else "undecided"
    disturbed = next((each.disturbed for each in apart if each.disturbed), "")
    return Tied(tuple(runs), tuple(behind), found, apart[0].text if n_columns == 2 else "", disturbed)


def _is_alike(apart: Versus) -> bool:
    """Return whether the whole interval of the ratio lies within 10 %, or there is no ratio, on a quiet machine."""
    low, high = apart.ratio_ci95 or (1.0, 1.0)
    return not apart.disturbed and low >= 1 / _ALIKE and high <= _ALIKE


def _left_out(lines: Sequence[ComparedLine]) -> list[str]:
    alone: dict[int, list[str]] = {}
    for line in lines:
        holders = [index for index, text in enumerate(line.texts) if text != UNKNOWN]
        if len(holders) == 1 and line.topic:
            alone.setdefault(holders[0], []).append(line.topic)
    return [
        f"only {letters([index])} has {in_words(topics)}: not compared"
        for index, topics in sorted(alone.items())
    ]
