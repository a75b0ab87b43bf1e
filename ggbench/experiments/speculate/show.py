"""Show speculative decoding: the verdict, the cost of each step, and the speed-up by accepted tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
from rich.console import RenderableType

from ggbench.experiments.speculate.record import (
    DraftedPair,
    DraftedText,
    PairMemory,
    SpeculateResult,
    SpeculationCase,
    SpeculationRound,
    result_of,
)
from ggbench.experiments.speculate.verdict import best_case, needed_acceptance, server_line, verdict
from ggbench.machine.records import MachineReading
from ggbench.models.subject import Subject
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show import ESSENTIAL
from ggbench.show.answer import Answer, Facts, Part
from ggbench.show.charts import Curve, LineChart, PlottedRun
from ggbench.show.document import Shape, field, many, of
from ggbench.show.machine import run_answer
from ggbench.show.metric import Metric, estimated
from ggbench.show.names import quant_name, quant_names
from ggbench.show.presenter import Presenter
from ggbench.show.run_documents import (
    CACHE_TYPES,
    MEASURED_FILE,
    ORIGIN,
    ShapedDocuments,
    expected,
    run_documents,
)
from ggbench.show.tables import AsWide, Cells, as_part, fitted_table, names, right, twin_caption
from ggbench.show.text import expected_text
from ggbench.stats.intervals import Estimate
from ggbench.stats.speculation import StepParts, StepTimes
from ggbench.text import in_words
from ggbench.units import format_bytes, format_count, format_number, format_percent

_CAPTION = (
    "Break-even: mean tokens per step above which it pays, and the share of drafted tokens accepted that gives them. "
    "x2: speed-up with 2 tokens per step."
)
_LENS = (2.0, 3.0, 4.0)
"""Mean tokens of a step for which a table has the speed-up."""

_CASE = Shape(
    "SpeculationCase",
    "Steps of one k at one depth.",
    of(SpeculationCase, "n_depth k"),
    of(StepTimes, "t1_ms step_ms", lambda case: case.step.times),
    of(StepParts, at=lambda case: case.step.times.parts, maybe=True),
    expected("break_even_len", "", lambda case: case.step.break_even, "break_even_ci95"),
    field(
        "break_even_acceptance",
        float | None,
        "The acceptance of each drafted token, after those before it, that gives this length; null if none does.",
        needed_acceptance,
    ),
)
_DRAFT = Shape("Draft", "The draft model.", of(Subject, "model quant file weight_bytes n_params"))
_SPECULATION = Shape(
    "Speculation",
    "Costs of speculative decoding, and the accepted tokens that it needs to pay.",
    MEASURED_FILE,
    CACHE_TYPES,
    field(
        "draft", _DRAFT | None, "The draft model; null for drafts without a file, such as n-grams.",
        lambda run: (found := result_of(run)) and found.pair.draft,
    ),
    field("verdict", str | None, "", lambda run: ((found := result_of(run)) and verdict(found)) or None),
    field("cases", many(_CASE), "", lambda run: found.cases if (found := result_of(run)) else ()),
    of(
        DraftedPair, "basis? has_random_router spec_type?",
        lambda run: (found := result_of(run)) and found.pair, maybe=True,
    ),
    of(SpeculateResult, "memory texts", result_of, maybe=True),
    field(
        "llama_server", str | None, "The command that drafts; null if no step was timed, or no draft pays.",
        lambda run: ((found := result_of(run)) and server_line(run, found)) or None,
    ),
    ORIGIN,
)  # fmt: skip


class SpeculatePresenter(Presenter):
    kind: ClassVar[str] = "speculate"
    documents: ClassVar[ShapedDocuments] = run_documents("speculate", _SPECULATION)
    has_line: ClassVar[bool] = False
    has_samples: ClassVar[bool] = False
    plotted: ClassVar[tuple[type, ...]] = (SpeculationRound,)
    no_answer: ClassVar[str] = "no step was measured"

    def answer(self, run: Run) -> str:
        """`slower below 1.94 ±0.05 tokens per step (k 3, 42 % accepted); at most 2.6 ±0.1 times as fast`."""
        found = result_of(run)
        return verdict(found) if found else ""

    def short_answer(self, run: Run) -> str:
        """Return `0.50–1.31 x on texts`, else `break-even 1.9`, at the least depth."""
        found = result_of(run)
        if found is None or not (found.texts or found.cases):
            return ""
        if not found.texts:
            return f"break-even {format_number(best_case(found.at(found.depths[0])).step.break_even.value, 2)}"
        gains = [each.gain.value for each in found.texts]
        ends = dict.fromkeys(format_number(gain, 2) for gain in (min(gains), max(gains)))
        return f"{'–'.join(ends)} x on texts"

    def line_charts(self, runs: Sequence[PlottedRun]) -> tuple[LineChart, ...]:
        """Plot speed-up against tokens per step for each k and, dashed, the break-even, one figure for each depth."""
        found = [run.result if isinstance(run.result, SpeculateResult) else None for run in runs]
        depths = sorted({n_depth for each in found if each for n_depth in each.depths})
        return tuple(_figure(n_depth, runs, found) for n_depth in depths)

    def metrics(self, summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
        """Return the break-even of each k at the least depth that all runs have in common."""
        found = [each for summary in summaries if (each := summary.result(SpeculateResult))]
        timed = [{(case.n_depth, case.k) for case in each.cases} for each in found]
        common = sorted(set.intersection(*timed)) if timed else []
        return tuple(_break_even(n_depth, k) for n_depth, k in common if n_depth == common[0][0])

    def details(self, run: Run, readings: Sequence[MachineReading] = ()) -> Answer:
        found, name = result_of(run), quant_name(run.subject)
        if found is None:
            return run_answer(run, Answer(name), readings)
        drafts = found.pair.draft
        by = found.pair.spec_type if drafts is None else quant_names([run.subject, drafts])[1]
        heading = f"{name}, drafted by {by}: {self.ending(run)}"
        parts: list[Part] = []
        if found.texts:
            parts.append(as_part(AsWide(lambda width: _texts_table(found.texts, width))))
        if found.cases:
            parts += self.table([run]).parts
        facts = [
            *_memory_facts(found.memory),
            ("from", found.pair.basis),
            ("type of drafts", found.pair.spec_type),
            ("llama-server", server_line(run, found)),
        ]
        return run_answer(run, Answer(heading, "", [*parts, Facts(facts)]), readings)

    def table(self, runs: Sequence[Run]) -> Answer:
        labels = quant_names([run.subject for run in runs]) if len(runs) > 1 else [""]
        found = [result_of(run) for run in runs]
        rows = [(label, case) for label, each in zip(labels, found, strict=True) if each for case in each.cases]
        if not rows:
            return Answer(
                "\n".join(f"{label}: {self.ending(run)}" for label, run in zip(labels, runs, strict=True))
            )
        caption = twin_caption(run.subject for run in runs)
        return Answer("", "", [as_part(AsWide(lambda width: _cases_table(rows, width, caption)))])


def _break_even(n_depth: int, k: int) -> Metric:
    def expected_of(summary: QuantSummary) -> Estimate | None:
        found = summary.result(SpeculateResult)
        cases = found.at(n_depth) if found else ()
        return next((case.step.break_even for case in cases if case.k == k), None)

    metric = Metric(
        f"break_even_k{k}",
        f"break-even, k {k}",
        "tokens",
        lambda summary: expected_text(expected_of(summary)),
        more_is_better=False,
        value=lambda summary: found.value if (found := expected_of(summary)) else None,
        topic=f"break-even of k {k}",
        is_timed=True,
    )
    return estimated(
        metric, lambda summary: (found.low, found.high) if (found := expected_of(summary)) else None
    )


def _texts_table(texts: Sequence[DraftedText], width: int) -> RenderableType:
    """Return what was generated with the draft, and whether the texts are those without it."""
    different = [f"{each.name} {each.difference}" for each in texts if each.difference]
    equality = (
        f"texts that differ from those without drafts: {'; '.join(different)}" if different else "same texts"
    )
    n_tokens = in_words([format_count(n) for n in sorted({each.n_tokens for each in texts})])

    def column(header: str, text: Callable[[DraftedText], str], unit: str, priority: int = ESSENTIAL) -> Cells:
        return right(header, map(text, texts), unit, priority, stays=True)

    return fitted_table(
        [
            names("text", (each.name for each in texts)),
            column("k", lambda each: str(each.k or ""), ""),
            column("without", lambda each: format_number(each.plain_tok_s), "tok/s", 1),
            column("with", lambda each: format_number(each.drafted_tok_s), "tok/s", 1),
            column("gain", lambda each: expected_text(each.gain), "times"),
            column("per step", lambda each: format_number(each.mean_len), "tokens"),
            column("of drafted", lambda each: format_percent(each.accepted_share), "accepted", 3),
        ],
        title="Generated at temperature 0, in turn without and with the draft",
        width=width,
        caption=f"{n_tokens} tokens of each; {equality}",
    )


def _memory_facts(memory: PairMemory | None) -> list[tuple[str, str]]:
    if memory is None:
        return []
    draft = (
        f"{format_bytes(memory.draft_weight_bytes)} weights, {format_bytes(memory.draft_context_bytes)} context"
    )
    both = f"{format_bytes(memory.needed_bytes)} of {format_bytes(memory.usable_bytes)} with the model"
    longest, alone = format_count(memory.max_n_ctx), format_count(memory.max_n_ctx_alone)
    return [
        (f"draft, n_ctx {format_count(memory.n_ctx)}", f"{draft}; {both}"),
        ("max n_ctx", f"{longest} with the draft, {alone} without"),
    ]


def _cases_table(rows: Sequence[tuple[str, SpeculationCase]], width: int | None, twins: str) -> RenderableType:
    cases = [each for _, each in rows]
    labels = names("quant", (name for name, _ in rows))
    longest = max(each.k for each in cases) + 1

    def column(
        header: str, text: Callable[[SpeculationCase], str], unit: str = "", priority: int = ESSENTIAL
    ) -> Cells:
        return right(header, map(text, cases), unit, priority, stays=True)

    return fitted_table(
        [
            *([] if labels.is_empty else [labels]),
            column("depth", lambda each: format_count(each.n_depth)),
            column("k", lambda each: str(each.k)),
            column("T1", lambda each: format_number(each.step.times.t1_ms), "ms", 2),
            column("step", lambda each: format_number(each.step.times.step_ms), "ms", 3),
            column("break-even", lambda each: expected_text(each.step.break_even), "tokens"),
            column("accepted", lambda each: format_percent(needed_acceptance(each))),
            *(_gains(cases, length) for length in _LENS if length <= longest),
        ],
        labels=[f"{name} depth {each.n_depth}, k {each.k}".strip() for name, each in rows],
        dim=[each.step.best_speedup.value <= 1 for each in cases],
        width=width,
        caption="\n".join(filter(None, (_CAPTION, twins))),
    )


def _gains(cases: Sequence[SpeculationCase], length: float) -> Cells:
    """Return the speed-ups with steps of this mean length, as precise as their intervals."""
    texts = [
        expected_text(each.step.speedup(length)).split()[0] if length <= each.k + 1 else "" for each in cases
    ]
    return right(f"x{length:g}", texts, "", 1)


def _figure(n_depth: int, runs: Sequence[PlottedRun], found: Sequence[SpeculateResult | None]) -> LineChart:
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
    curves.append(Curve("without a draft", x, np.ones(len(x)), np.zeros(len(x)), run=0, is_formula=True))
    name = "speed over that without a draft"
    if n_depth:
        name += f", depth {format_count(n_depth)}"
    return LineChart(
        f"speculate-d{n_depth}", name, "", "mean tokens per step", "", tuple(curves), end, y_low=0.0
    )


PRESENTER = SpeculatePresenter()
