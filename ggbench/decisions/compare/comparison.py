"""Compare measured runs: which one is better, in which figure and by how much, and what else differs.

A time from one run changes with every load of the model. So a run is called faster only if the interval of the ratio of
four or more turns excludes 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from ggbench.decisions.compare.differences import Column, Difference, caveats, differences_of, letters
from ggbench.decisions.compare.versus import ColumnValue, Pairs, Versus, column_value, pairs_of
from ggbench.expect.loss import expected_loss
from ggbench.expect.measured_losses import MeasuredLosses, measured_losses
from ggbench.models.subject import Subject
from ggbench.runs.comparable import setting_of
from ggbench.runs.run import Run
from ggbench.runs.store.database import Store
from ggbench.runs.summary import QuantSummary
from ggbench.show import letter
from ggbench.show.metric import BOUND, Concern, Metric, depth_key, depth_metrics, vary
from ggbench.show.names import column_names
from ggbench.show.presenter import metrics_of, presenter_of
from ggbench.show.run_answer import in_turns
from ggbench.show.words import say
from ggbench.stats.intervals import Interval
from ggbench.stats.turns import FEWEST_TURNS
from ggbench.text import in_words
from ggbench.units import format_number

Outcome = Literal["", "better", "same", "undecided", "no_verdict", "left_out"]
"""Empty if fewer than two runs have a value; `no_verdict`: times of one run each, or not in turns."""


class ComparedRun(msgspec.Struct, frozen=True):
    """A run, or the mean of repeated runs."""

    letter: str
    """In texts: the first is `a`."""
    name: str
    """The shortest that distinguishes it from the others."""
    run_ids: tuple[int | None, ...]
    """Numbers of the averaged runs; null for a run that is not stored."""
    run: Run
    """The first one."""


class ComparedFigure(msgspec.Struct, frozen=True):
    """A figure of every run, in their order."""

    metric: str
    """Its key."""
    header: str
    topic: str
    """Name in sentences; empty if it follows from another figure."""
    concern: Concern
    more_is_better: bool
    texts: tuple[str, ...]
    """An em dash if unknown."""
    values: tuple[float | None, ...]
    values_ci95: tuple[Interval | None, ...]
    """Interval of each value: of one run for the noise within it; null if unknown."""
    versus: tuple[Versus | None, ...]
    """Each run compared with the first; null for the first itself, and if either is not compared."""
    outcome: Outcome
    compared: tuple[str, ...]
    """Letters of the runs that are compared."""
    better: tuple[str, ...]
    """Letters of the runs that are better than another and beaten by none."""
    left_out: Mapping[str, str]
    """Runs that are not compared, by the reason."""
    lead: str | None = None
    """Letter of the run that the verdict is about, if it is about one."""
    verdict: str = ""


class Comparison(msgspec.Struct, frozen=True):
    """Runs side by side; the others are compared with the first."""

    rows: tuple[ComparedRun, ...]
    sentence: str
    """The answer."""
    command: str
    """Measures again in turns what is undecided; empty if all is decided, or if that would not decide it."""
    metrics: tuple[ComparedFigure, ...]
    depths: tuple[ComparedFigure, ...]
    """Speed by tokens in the cache, `~` if it is not measured but from the run's fitted line."""
    differences: tuple[Difference, ...]
    warnings: tuple[str, ...]
    """Reasons not to trust or compare a number."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(row.name for row in self.rows)

    @property
    def is_empty(self) -> bool:
        return not any(line.outcome for line in (*self.metrics, *self.depths))

    @property
    def stated(self) -> tuple[ComparedFigure, ...]:
        """Figures covered by the answer."""
        return _stated(self.metrics, self.depths, _asked_depths(self.rows))


def compare_stored(store: Store, columns: Sequence[Column]) -> Comparison:
    """Compare columns with the losses measured in a store, as every command and the report do. Raises StoreError."""
    return compare(columns, measured_losses(store, {column[0].subject.header_sha256 for column in columns}))


def columns_of(summaries: Sequence[QuantSummary], places: Sequence[str] = ()) -> list[Column]:
    """Return a column for each setting with its repeats, or for each run if all are of one setting.

    Runs that differ in `places` are not averaged: their files, empty for the store.
    """
    columns: dict[tuple[str, str], Column] = {}
    for index, summary in enumerate(summaries):
        key = places[index] if places else "", setting_of(summary.run)
        columns[key] = (*columns.get(key, ()), summary)
    return list(columns.values()) if len(columns) > 1 else [(summary,) for summary in summaries]


def compare(columns: Sequence[Column], losses: MeasuredLosses | None = None) -> Comparison:
    """Compare columns, each a run or the mean of repeated runs; a single one has no verdicts.

    Raises StoreError for an experiment unknown to this ggbench.
    """
    summaries = [column[0] for column in columns]
    kinds = [summary.run.head.kind for summary in summaries]
    names = column_names(summaries)
    rows = tuple(
        ComparedRun(letter(n), name, tuple(each.run.run_id for each in column), column[0].run)
        for n, (name, column) in enumerate(zip(names, columns, strict=True))
    )
    metrics, depths = (
        tuple(_compared(metric, columns, names) for metric in found)
        for found in (metrics_of(kinds, summaries), depth_metrics(summaries))
    )
    leads = _leads(_stated(metrics, depths, _asked_depths(rows)))
    return Comparison(
        rows=rows,
        sentence=_sentence(leads, metrics, rows, losses or MeasuredLosses()),
        command=_again(columns, leads) if any(map(_is_open, leads)) else "",
        metrics=metrics,
        depths=depths,
        differences=differences_of(summaries),
        warnings=tuple(caveats(columns)),
    )


def _is_open(line: ComparedFigure) -> bool:
    """Return whether more repeats may decide it."""
    return line.outcome in ("undecided", "no_verdict") or BOUND in line.left_out


def _asked_depths(rows: Sequence[ComparedRun]) -> frozenset[str]:
    """Return the keys of the depths at which every run was asked to decode."""
    asked = [getattr(row.run.head.settings, "depths", ()) for row in rows]
    return frozenset(set.intersection(*({depth_key(depth) for depth in depths} for depths in asked)))


def _stated(
    metrics: Sequence[ComparedFigure], depths: Sequence[ComparedFigure], asked: frozenset[str]
) -> tuple[ComparedFigure, ...]:
    """Return the figures of the answer; speed by depth replaces the mean over depths that all were asked for, and a
    speed that cannot be compared.
    """
    lines = [line for line in metrics if line.topic and line.outcome]
    at_asked = [line for line in depths if line.metric in asked and line.outcome]
    has_speed = any(len(line.compared) > 1 for line in lines if line.concern == "speed")
    instead = at_asked if at_asked or has_speed else [line for line in depths if len(line.compared) > 1]
    return (*instead, *(line for line in lines if not instead or line.metric != "tok_s"))


def _leads(stated: Sequence[ComparedFigure]) -> list[ComparedFigure]:
    """Return the figures of the verdict: the first speed or quality, and the first in which it is another."""
    leads = [line for line in stated if line.concern in ("speed", "quality")]
    leads = leads or [line for line in stated if line.concern != "memory"]
    leads = [line for line in leads if line.outcome != "left_out"] or leads
    distinct: dict[object, ComparedFigure] = {}
    for line in leads:
        distinct.setdefault((line.outcome, line.better), line)
    return list(distinct.values())[:2]


def _sentence(
    leads: Sequence[ComparedFigure],
    metrics: Sequence[ComparedFigure],
    rows: Sequence[ComparedRun],
    losses: MeasuredLosses,
) -> str:
    """Return the verdicts, who takes less memory, and what two quants lose."""
    memory = [line for line in metrics if line.concern == "memory" and line.outcome]
    verdicts = [*leads, *(line for line in memory if not leads or line.outcome == "better")]
    if not verdicts:
        return say("compare.nothing", names=in_words([row.name for row in rows]))
    said = [(line.lead, line.verdict) for line in verdicts]
    if "quality" not in {line.concern for line in leads}:
        said += _losses(rows, losses)
    return " ".join(_about_it({row.letter: row.name for row in rows}, said))


_Said: TypeAlias = tuple[str | None, str]
"""The letter of the run that a sentence starts with, if it does, and the sentence."""


def _about_it(names: Mapping[str, str], said: Iterable[_Said]) -> Iterator[str]:
    """Yield the sentences; one about the same run as the sentence before starts with `It`."""
    before = None
    for subject, sentence in said:
        yield sentence.replace(names[subject], "It", 1) if subject and subject == before else sentence
        before = subject


def _losses(rows: Sequence[ComparedRun], losses: MeasuredLosses) -> Iterator[_Said]:
    """Yield what two quants of a model lose: measured, or what is typical of them."""
    if len(rows) != 2:
        return
    own, other = (row.run.subject for row in rows)
    if own.quant == other.quant or own.has_other_shape(other):
        return
    nats, other_nats = (_loss_text(each, losses) for each in (own, other))
    if nats and other_nats:
        text = say("compare.losses", name=rows[0].name, nats=nats, other=rows[1].name, other_nats=other_nats)
        yield rows[0].letter, text


def _loss_text(subject: Subject, losses: MeasuredLosses) -> str:
    """Return `0.064` if measured, `~0.02` if expected; empty if unknown."""
    if subject.header_sha256 and (measured := losses.of_weights(subject.header_sha256)):
        return format_number(measured.value, 2)
    expected = expected_loss(subject.model, subject.quant, subject.n_params, subject.architecture or "")
    return f"~{format_number(expected.value, 1)}" if expected else ""


def _again(columns: Sequence[Column], leads: Sequence[ComparedFigure]) -> str:
    """Return the command that measures the runs again in turns, or more of them; empty if that is not possible here."""
    runs = [column[0].run for column in columns]
    longer = [presenter_of(run.head.kind).longer(run) for run in runs]
    if all(longer):
        return " && ".join(longer)
    n_turns = max((each.n_turns or 0 for line in leads for each in line.versus if each), default=0)
    return in_turns(runs, max(FEWEST_TURNS, 2 * n_turns))


class _Ranking(msgspec.Struct, frozen=True):
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
        if outcome in _ABOUT_ONE:
            return self.best[0], next(run for run in self.order if run != self.best[0])
        one, other = sorted(self.best[:2])
        return other, one


_ABOUT_ONE = ("better", "no_verdict")
"""Outcomes whose sentence is about one run."""


def _compared(metric: Metric, columns: Sequence[Column], names: Sequence[str]) -> ComparedFigure:
    found, more = _values(metric, columns), metric.figure.better == "more"
    ranking = _Ranking.of(pairs_of(metric, columns, found), found, more_is_better=more)
    line = ComparedFigure(
        metric=metric.key,
        header=metric.figure.title,
        topic=metric.topic,
        concern=metric.concern,
        more_is_better=more,
        texts=tuple(each.text for each in found),
        values=tuple(each.value for each in found),
        values_ci95=tuple(each.ci95 for each in found),
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
        key, gain = metric.win, _gain(metric, apart, line.values[one], line.values[other])
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
    return replace(line, outcome=outcome, lead=letter(one) if outcome in _ABOUT_ONE else None, verdict=verdict)


def _gain(metric: Metric, found: Versus, one: float | None, other: float | None) -> str:
    """Return the lead of a run as a ratio or, if the metric says so, as a difference."""
    if metric.difference is None or one is None or other is None:
        return found.text
    return metric.difference(abs(one - other))


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
