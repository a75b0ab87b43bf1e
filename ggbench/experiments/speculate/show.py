"""Show speculative decoding: whether it pays, the cost of each step, and the speed-up by accepted tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from ggbench.experiments.speculate.record import (
    DraftedText,
    SpeculateResult,
    SpeculationCase,
    SpeculationRound,
    result_of,
)
from ggbench.experiments.speculate.verdict import best_case, drafting_line, needed_acceptance, verdict
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show.answer import Answer, Facts, Part, Table
from ggbench.show.charts import Curve, LineChart, PlottedRun
from ggbench.show.figure import Figure, bounded_text, facts_of, member, reader
from ggbench.show.metric import Metric, RunFigure
from ggbench.show.names import twin_notes
from ggbench.show.presenter import Presenter
from ggbench.show.run_answer import run_answer
from ggbench.show.run_documents import RunDocuments
from ggbench.show.run_figures import CACHE_TYPES
from ggbench.show.server_line import file_words
from ggbench.show.words import say
from ggbench.stats.intervals import Estimate
from ggbench.units import format_bytes, format_count, format_number, format_percent

_LENS = (2.0, 3.0, 4.0)
"""Mean tokens of a step for which a table has the speed-up."""
_MOST_ROWS = 8
"""Rows of a table in front; with more, it has those of the least depth."""
_RULE = "Drafts pay above the break-even, in mean tokens of a step. x2 is the speed-up with steps of 2 tokens."


def _best(summary: QuantSummary) -> SpeculationCase | None:
    """Return the best case at the least depth."""
    found = result_of(summary.run)
    return best_case(found.at(found.depths[0])) if found and found.cases else None


def _of_result(key: str, meaning: str, get: Callable[[Run, SpeculateResult], str]) -> Figure[QuantSummary]:
    def value(summary: QuantSummary) -> str | None:
        found = result_of(summary.run)
        return get(summary.run, found) or None if found else None

    return Figure(key, "", value, meaning=meaning)


def _needed(summary: QuantSummary) -> float | None:
    case = _best(summary)
    return None if case is None else needed_acceptance(case)


_BREAK_EVEN = Figure[QuantSummary](
    "break_even_len", "break-even", reader("step.break_even", _best), bounded_text, "tokens",
    "Mean tokens above which the best step at the least depth pays.", is_estimate=True,
)  # fmt: skip
_DOCUMENTED = (
    *CACHE_TYPES,
    _of_result("verdict", "Whether drafts pay.", lambda run, found: verdict(found)),
    _of_result("llama_server", "The command that drafts; null if no draft pays.", drafting_line),
    Figure[QuantSummary](
        "k", "", reader("k", _best), meaning="Tokens drafted in the best step at the least depth."
    ),
    _BREAK_EVEN,
    Figure[QuantSummary](
        "break_even_acceptance", "", _needed,
        meaning="Acceptance of each drafted token, after those before it, that gives this length; null if none does.",
    ),
)  # fmt: skip


class SpeculatePresenter(Presenter):
    kind: ClassVar[str] = "speculate"
    documents: ClassVar[RunDocuments] = RunDocuments(
        "speculate", _DOCUMENTED, "Costs of speculative decoding, and the accepted tokens that it needs to pay."
    )
    has_line: ClassVar[bool] = False
    has_samples: ClassVar[bool] = False
    plotted: ClassVar[tuple[type, ...]] = (SpeculationRound,)
    no_answer: ClassVar[str] = "no step was measured"
    headline: ClassVar[Figure[QuantSummary] | None] = _BREAK_EVEN

    def answer(self, run: Run) -> str:
        found = result_of(run)
        return verdict(found) if found else ""

    def short_answer(self, run: Run) -> str:
        """Return `0.50–1.31 x on texts`, else `break-even 1.9`, at the least depth."""
        found = result_of(run)
        if found is None or not found.texts:
            return super().short_answer(run)
        gains = [each.gain.value for each in found.texts]
        ends = dict.fromkeys(format_number(gain, 2) for gain in (min(gains), max(gains)))
        return f"{'–'.join(ends)} x on texts"

    def line_charts(self, runs: Sequence[PlottedRun]) -> tuple[LineChart, ...]:
        """Plot speed-up against tokens per step for each k and, dashed, the break-even, one figure for each depth."""
        found = [run.result if isinstance(run.result, SpeculateResult) else None for run in runs]
        depths = sorted({n_depth for each in found if each for n_depth in each.depths})
        return tuple(_chart(n_depth, runs, found) for n_depth in depths)

    def metrics(self, summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
        """Return the break-even of each k at the least depth that all runs have in common."""
        found = [each for summary in summaries if (each := summary.result(SpeculateResult))]
        timed = [{(case.n_depth, case.k) for case in each.cases} for each in found]
        common = sorted(set.intersection(*timed)) if timed else []
        return tuple(_break_even(n_depth, k) for n_depth, k in common if n_depth == common[0][0])

    def details(self, run: Run) -> Answer:
        found = result_of(run)
        if found is None:
            return run_answer(run, Answer(self.ending(run)))
        cases = found.at(found.depths[0]) if len(found.cases) > _MOST_ROWS else found.cases
        front: Part = _texts_table(found.texts) if found.texts else _cases_table(cases)
        different = [f"{each.name} {each.difference}" for each in found.texts if each.difference]
        notes = twin_notes([run.subject])
        if different:
            notes.insert(0, say("speculate.differ", texts="; ".join(different)))
        has_all = not found.texts and cases == found.cases
        why: list[Part] = [] if has_all else [_cases_table(found.cases)]
        if found.memory is not None:
            why.append(Facts(facts_of(_MEMORY, found.memory), "Memory"))
        pair = found.pair
        draft = " ".join(file_words(pair.draft, "-md", "-hfd")) if pair.draft else ""
        why.append(
            Facts([("break-even", _RULE), ("draft", draft), ("type", pair.spec_type), ("from", pair.basis)])
        )
        answer = Answer(self.ending(run), drafting_line(run, found), [front], notes, why)
        return run_answer(run, answer)


def _break_even(n_depth: int, k: int) -> Metric:
    def expected_of(summary: QuantSummary) -> Estimate | None:
        found = summary.result(SpeculateResult)
        cases = found.at(n_depth) if found else ()
        return next((case.step.break_even for case in cases if case.k == k), None)

    key, topic = f"break_even_k{k}", f"break-even of k {k}"
    figure = RunFigure(key, topic, expected_of, bounded_text, "tokens", better="less", is_estimate=True)
    return Metric(figure, topic, is_timed=True)


_TEXTS = (
    member("name", "text"),
    member("k", "k"),
    member("plain_tok_s", "without", unit="tok/s", priority=1),
    member("drafted_tok_s", "with drafts", unit="tok/s", priority=1),
    member("gain", "gain", unit="times"),
    member("mean_len", "per step", unit="tokens", priority=2),
    member("accepted_share", "accepted", format_percent, priority=3),
    member("n_tokens", "length", unit="tokens", priority=4),
)


def _texts_table(texts: Sequence[DraftedText]) -> Table[DraftedText]:
    return Table(_TEXTS, texts, "Continued at temperature 0, in turn without and with drafts")


def _gain(length: float) -> Figure[SpeculationCase]:
    """Return the speed-up with steps of this mean length."""
    name = f"x{length:g}"
    return Figure(
        name, name, lambda case: case.step.speedup(length).value if length <= case.k + 1 else None, priority=1
    )


_CASES = (
    member("n_depth", "depth"),
    member("k", "k"),
    member("t1_ms", "T1", path="step.times.t1_ms", unit="ms", priority=2),
    member("step_ms", "step", path="step.times.step_ms", unit="ms", priority=3),
    member("break_even_len", "break-even", bounded_text, "step.break_even", unit="tokens"),
    Figure("break_even_acceptance", "accepted", needed_acceptance, format_percent),
    *map(_gain, _LENS),
)


def _cases_table(cases: Sequence[SpeculationCase]) -> Table[SpeculationCase]:
    return Table(_CASES, cases, style=lambda case: "dim" if case.step.best_speedup.value <= 1 else "")


_MEMORY = (
    member("n_ctx", "n_ctx"),
    member("draft_weight_bytes", "draft", format_bytes),
    member("draft_context_bytes", "its context", format_bytes),
    member("needed_bytes", "with the model", format_bytes),
    member("usable_bytes", "usable", format_bytes),
    member("max_n_ctx", "max n_ctx"),
)


def _chart(n_depth: int, runs: Sequence[PlottedRun], found: Sequence[SpeculateResult | None]) -> LineChart:
    curves, end = [], 2
    for index, (run, result) in enumerate(zip(runs, found, strict=True)):
        for case in result.at(n_depth) if result else ():
            x = np.arange(1, case.k + 2)
            y = np.array([case.step.speedup(float(length)).value for length in x])
            name = f"{run.name}, k {case.k}" if len(runs) > 1 else f"k {case.k}"
            note = f"{format_number(float(y[-1]))} times at {case.k + 1} tokens"
            curves.append(Curve(name, x, y, np.zeros(len(y)), note=note, dimmed=run.dimmed, run=index))
            end = max(end, case.k + 1)
    x = np.arange(1, end + 1)
    curves.append(Curve("without a draft", x, np.ones(len(x)), np.zeros(len(x)), run=0))
    name = "speed over that without a draft"
    if n_depth:
        name += f", depth {format_count(n_depth)}"
    return LineChart(
        f"speculate-d{n_depth}", name, "", "mean tokens per step", "", tuple(curves), end, y_low=0.0
    )


PRESENTER = SpeculatePresenter()
