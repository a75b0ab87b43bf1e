"""Compare measured runs: which one is better, in which figure and by how much, and what else differs.

A time from one run changes with every load of the model. So a run is called faster only if the interval of the ratio of
four or more turns excludes 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec.structs import replace

from ggbench.decisions.compare.differences import Column, Difference, caveats, differences_of, letters
from ggbench.decisions.compare.versus import ColumnValue, Pairs, Versus, column_value, pairs_of
from ggbench.record import Record
from ggbench.runs.comparable import setting_of
from ggbench.runs.run import Run
from ggbench.show import letter
from ggbench.show.metric import BOUND, DEPTH, Concern, Metric, vary
from ggbench.show.names import column_names
from ggbench.show.presenter import metrics_of, presenter_of
from ggbench.show.run_answer import in_turns
from ggbench.show.words import say
from ggbench.stats.turns import FEWEST_TURNS
from ggbench.text import in_words
from ggbench.units import format_number

Outcome = Literal["", "better", "same", "undecided", "no_verdict", "left_out"]
"""Empty if fewer than two runs have a value; `no_verdict`: times of one run each, or not in turns."""


class ComparedRun(Record):
    """A run, or the mean of repeated runs."""

    letter: str
    """In texts: the first is `a`."""
    name: str
    """The shortest that distinguishes it from the others."""
    run_ids: tuple[int | None, ...]
    """Numbers of the averaged runs; null for a run that is not stored."""
    run: Run
    """The first one."""


class ComparedFigure(Record):
    """A figure of every run, in their order."""

    metric: str
    """Its key."""
    header: str
    topic: str
    """Name in sentences; empty if it follows from another figure."""
    concern: Concern
    texts: tuple[str, ...]
    """An em dash if unknown."""
    values: tuple[float | None, ...]
    versus: tuple[Versus | None, ...]
    """Each run compared with the first; null for the first itself, and if either is not compared."""
    outcome: Outcome
    compared: tuple[str, ...]
    """Letters of the runs that are compared."""
    better: tuple[str, ...]
    """Letters of the runs that are better than another and beaten by none."""
    left_out: Mapping[str, str]
    """Runs that are not compared, by the reason."""
    verdict: str = ""


class Comparison(Record):
    """Runs side by side; the others are compared with the first."""

    rows: tuple[ComparedRun, ...]
    sentence: str
    """The answer."""
    command: str
    """Measures again in turns what is undecided; empty if all is decided, or if that would not decide it."""
    metrics: tuple[ComparedFigure, ...]
    differences: tuple[Difference, ...]
    warnings: tuple[str, ...]
    """Reasons not to trust or compare a number."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(row.name for row in self.rows)

    @property
    def is_empty(self) -> bool:
        return not any(line.outcome for line in self.metrics)

    @property
    def stated(self) -> tuple[ComparedFigure, ...]:
        """Figures covered by the answer."""
        return _stated(self.metrics)


def columns_of(runs: Sequence[Run], places: Sequence[str] = ()) -> list[Column]:
    """Return a column for each setting with its repeats, or for each run if all are of one setting.

    Runs that differ in `places` are not averaged.
    """
    columns: dict[tuple[str, str], Column] = {}
    for index, run in enumerate(runs):
        key = places[index] if places else "", setting_of(run)
        columns[key] = (*columns.get(key, ()), run)
    return list(columns.values()) if len(columns) > 1 else [(run,) for run in runs]


def compare(columns: Sequence[Column]) -> Comparison:
    """Compare columns, each a run or the mean of repeated runs; a single one has no verdicts.

    Raises StoreError for an experiment unknown to this ggbench.
    """
    runs = [column[0] for column in columns]
    kinds = [run.head.kind for run in runs]
    names = column_names(runs)
    rows = tuple(
        ComparedRun(letter(n), name, tuple(each.run_id for each in column), column[0])
        for n, (name, column) in enumerate(zip(names, columns, strict=True))
    )
    metrics = tuple(_compared(metric, columns, names) for metric in metrics_of(kinds, runs))
    leads = _leads(_stated(metrics))
    return Comparison(
        rows=rows,
        sentence=_sentence(leads, metrics, names),
        command=_again(columns, leads),
        metrics=metrics,
        differences=differences_of(runs),
        warnings=tuple(caveats(columns)),
    )


def _stated(metrics: Sequence[ComparedFigure]) -> tuple[ComparedFigure, ...]:
    """Return the figures of the answer; the speeds at depths that several runs have replace the mean over depths."""
    lines = tuple(line for line in metrics if line.topic and line.outcome)
    at_depths = any(line.metric.startswith(DEPTH) and len(line.compared) > 1 for line in lines)
    return tuple(line for line in lines if not at_depths or line.metric != "tok_s")


def _leads(stated: Sequence[ComparedFigure]) -> list[ComparedFigure]:
    """Return the figures of the verdict: the first speed or quality, and the first in which it is another."""
    leads = [line for line in stated if line.concern in ("speed", "quality")]
    leads = leads or [line for line in stated if line.concern != "memory"]
    leads = [line for line in leads if line.outcome != "left_out"] or leads
    distinct: dict[object, ComparedFigure] = {}
    for line in leads:
        distinct.setdefault((line.outcome, line.better), line)
    return list(distinct.values())[:2]


def _sentence(leads: Sequence[ComparedFigure], metrics: Sequence[ComparedFigure], names: Sequence[str]) -> str:
    """Return the verdicts, and who takes less memory."""
    memory = [line for line in metrics if line.concern == "memory" and line.outcome]
    verdicts = [*leads, *(line for line in memory if not leads or line.outcome == "better")]
    if not verdicts:
        return say("compare.nothing", names=in_words(names))
    return " ".join(line.verdict for line in verdicts)


def _again(columns: Sequence[Column], leads: Sequence[ComparedFigure]) -> str:
    """Return the command that measures more, or again in turns; empty if all is decided, or if that would not decide
    it.
    """
    runs = [column[0] for column in columns]
    undecided = [line for line in leads if line.outcome not in ("better", "same")]
    if undecided and (longer := presenter_of(runs[0].head.kind).longer(runs)):
        return longer
    if all(line.outcome == "left_out" and BOUND not in line.left_out for line in undecided):
        return ""
    n_turns = max((each.n_turns or 0 for line in leads for each in line.versus if each), default=0)
    return in_turns(runs, max(FEWEST_TURNS, 2 * n_turns))


class _Ranking(Record):
    """Runs compared by a figure, by their indices."""

    pairs: Pairs
    order: Sequence[int]
    """The compared runs, the best value first."""
    winners: set[int]
    """Those that are better than another."""
    losers: set[int]

    @classmethod
    def of(cls, pairs: Pairs, found: Sequence[ColumnValue], *, more_is_better: bool) -> _Ranking:
        beaten = [
            pair for pair, each in pairs.items() if each.is_different and (each.ratio > 1) is more_is_better
        ]
        compared = {run: found[run].compared or 0.0 for run, _ in pairs}
        order = sorted(compared, key=compared.__getitem__, reverse=more_is_better)
        return cls(pairs, order, {one for one, _ in beaten}, {other for _, other in beaten})

    @property
    def best(self) -> list[int]:
        """Runs that no other beats."""
        return [run for run in self.order if run not in self.losers]

    def lead_pair(self, outcome: Outcome) -> tuple[int, int]:
        """Return the best and the next best, or the second and the first of those of which none is better."""
        if outcome == "better":
            return self.best[0], next(run for run in self.order if run != self.best[0])
        one, other = sorted(self.best[:2])
        return other, one


def _compared(metric: Metric, columns: Sequence[Column], names: Sequence[str]) -> ComparedFigure:
    found, more = _values(metric, columns), metric.figure.better == "more"
    ranking = _Ranking.of(pairs_of(metric, columns, found), found, more_is_better=more)
    line = ComparedFigure(
        metric=metric.key,
        header=metric.figure.title,
        topic=metric.topic,
        concern=metric.concern,
        texts=tuple(each.text for each in found),
        values=tuple(each.value for each in found),
        versus=tuple(ranking.pairs.get((index, 0)) for index in range(len(columns))),
        outcome="",
        compared=tuple(letter(run) for run, each in enumerate(found) if each.compared is not None),
        better=tuple(map(letter, sorted(ranking.winners - ranking.losers))),
        left_out=_left_out(found),
    )
    if ranking.pairs:
        return _decided(line, metric, names, ranking)
    if not line.left_out:
        return line
    why = "; ".join(f"{why} ({who})" for why, who in line.left_out.items())
    return replace(line, outcome="left_out", verdict=say("compare.left_out", topic=metric.topic, why=why))


def _values(metric: Metric, columns: Sequence[Column]) -> list[ColumnValue]:
    """Return the value of each column, none compared if they are of different things."""
    found = [column_value(metric, column) for column in columns]
    if not vary(metric.basis, [column[0] for column in columns]):
        return found
    return [replace(each, left_out=metric.other_basis) if each.is_known else each for each in found]


def _decided(line: ComparedFigure, metric: Metric, names: Sequence[str], ranking: _Ranking) -> ComparedFigure:
    """Return the line with its outcome, in a sentence too."""
    pairs, best = ranking.pairs, ranking.best
    outcome = _outcome([pairs[other, one] for one, other in itertools.combinations(best, 2)], metric.alike)
    one, other = ranking.lead_pair(outcome)
    apart, key = pairs[one, other], str(outcome)
    gain = apart.text
    if outcome == "better":
        key = metric.win
        if metric.difference is not None:
            gain = metric.difference(line.values[one] or 0.0, line.values[other] or 0.0)
    if len(names) > 2 and outcome != "no_verdict":
        key += "_of_many"
    verdict = say(
        f"compare.{key}",
        name=names[one],
        over=names[other],
        gain=gain,
        topic=metric.topic,
        why=apart.doubt_text,
        alike=format_number(metric.alike * 100, 1),
        best=in_words([names[run] for run in sorted(best)]),
    )
    return replace(line, outcome=outcome, verdict=verdict)


def _outcome(apart: Sequence[Versus], alike: float) -> Outcome:
    """Return the outcome of a figure from the pairs of those that no other beats."""
    if not apart:
        return "better"
    if any(each.doubt for each in apart):
        return "no_verdict"
    return "same" if all(each.is_alike(alike) for each in apart) else "undecided"


def _left_out(found: Sequence[ColumnValue]) -> dict[str, str]:
    """Return the letters of the runs that are not compared, by the reason; none if only one has a value."""
    if sum(each.is_known for each in found) < 2:
        return {}
    reasons = dict.fromkeys(each.left_out for each in found if each.left_out)
    return {why: letters([run for run, each in enumerate(found) if each.left_out == why]) for why in reasons}
