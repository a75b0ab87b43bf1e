"""Show speculative decoding: the verdict, the cost of each step, and the speed-up by accepted tokens."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from ggbench.experiments.speculate.record import (
    DraftedPair,
    DraftedText,
    PairMemory,
    SpeculateResult,
    SpeculationCase,
    SpeculationRound,
    result_of,
)
from ggbench.experiments.speculate.verdict import (
    ACCEPTANCES,
    METHODS,
    PublishedGain,
    needed_acceptance,
    published_gains,
    server_line,
    step_text,
    verdict,
)
from ggbench.machine.records import MachineReading
from ggbench.models.published.acceptance import Acceptance
from ggbench.models.subject import Subject
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show.document import Shape, field, many, of
from ggbench.show.figures import Curve, Figure, PlottedRun
from ggbench.show.machine import run_page
from ggbench.show.metric import Metric, estimated
from ggbench.show.names import quant_name, quant_names
from ggbench.show.presenter import Presenter
from ggbench.show.run_documents import CACHE_TYPES, MEASURED_FILE, ORIGIN, RunDocuments, expected, run_documents
from ggbench.show.tables import AsWide, Cells, facts_table, fitted_table, names, right, twin_caption
from ggbench.show.text import expected_text
from ggbench.stats.intervals import Expected
from ggbench.stats.speculation import MeasuredStep, StepParts, StepTimes, best_step, mean_len
from ggbench.text import in_words
from ggbench.units import counted, format_bytes, format_count, format_number, format_percent

_MOE_NOTE = "The twin's router is random; a trained one may send a batch to more or fewer experts."
_LEAST_NOTE = "least: break-even if all tokens of a batch needed the experts of one."
_PARTS_NOTE = "verify: k + 1 tokens in one batch; draft: one token; reread: the draft reads the batch again."
_SERVED_NOTE = "step: llama-server drafts k tokens and verifies them; it was made to reject all."
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
    of(MeasuredStep, "least_break_even_len", lambda case: case.step),
    of(SpeculationCase, "speedup_by_len"),
)
_PUBLISHED = Shape(
    "PublishedGain",
    "The speed-up of this pair with steps of a length that others published.",
    of(Acceptance, "method target draft task n_draft mean_len temperature source", lambda gain: gain.figure),
    of(PublishedGain, "k"),
    expected("speedup", "", lambda gain: gain.speedup),
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
        "published", many(_PUBLISHED), "At the smallest depth.",
        lambda run: published_gains(found) if (found := result_of(run)) else (),
    ),
    field(
        "llama_server", str | None, "The command that drafts; null if no step was timed, or no draft pays.",
        lambda run: ((found := result_of(run)) and server_line(run, found)) or None,
    ),
    ORIGIN,
)  # fmt: skip


class SpeculatePresenter(Presenter):
    kind: ClassVar[str] = "speculate"
    documents: ClassVar[RunDocuments] = run_documents("speculate", _SPECULATION)
    has_line: ClassVar[bool] = False
    has_samples: ClassVar[bool] = False
    plotted: ClassVar[tuple[type, ...]] = (SpeculationRound,)
    no_answer: ClassVar[str] = "no step was measured"

    def answer(self, run: Run) -> str:
        """`slower below 1.94 ±0.05 tokens per step (k 3, 42 % accepted); at most 2.6 ±0.1 times as fast`."""
        found = result_of(run)
        return verdict(found) if found else ""

    def short_answer(self, run: Run) -> str:
        """Return `0.50–1.31 x on texts`, else `at most 2.6 x`; of a random router `break-even 1.9–3.2` or `~ 3.2`."""
        found = result_of(run)
        if found is None or not (found.texts or found.cases):
            return ""
        if gains := [each.gain.value for each in found.texts]:
            low, high = (format_number(gain, 2) for gain in (min(gains), max(gains)))
            return f"{low if low == high else f'{low}–{high}'} x on texts"
        if found.is_routed_at_random:
            return f"break-even ~ {format_number(found.cases[0].step.break_even.value, 2)}"
        if found.pair.has_random_router:
            most = min((each.step for each in found.cases), key=lambda step: step.break_even.value)
            ends = most.least_break_even_len, most.break_even.value
            return f"break-even {'–'.join(format_number(end, 2) for end in ends if end is not None)}"
        gain = max(each.step.best_speedup.value for each in found.cases)
        return f"at most {format_number(gain, 2)} x"

    def figures(self, runs: Sequence[PlottedRun]) -> tuple[Figure, ...]:
        """Plot speed-up against tokens per step for each k and, dashed, the break-even, one figure for each depth."""
        found = [run.result if isinstance(run.result, SpeculateResult) else None for run in runs]
        depths = sorted({n_depth for each in found if each for n_depth in each.depths})
        return tuple(_figure(n_depth, runs, found) for n_depth in depths)

    def live_lines(self, run: PlottedRun) -> tuple[str, ...]:
        """Return the latest break-even of each k; of twins only the round, as only both together give it."""
        rounds = [each for each in run.observations if isinstance(each, SpeculationRound)]
        if not rounds:
            return ()
        last, head = rounds[-1], f"round {rounds[-1].round + 1}, depth {format_count(rounds[-1].n_depth)}"
        if any(each.twin for each in rounds):
            return (head,)
        steps = (f"k {each.k:>2}{format_number(each.break_even_len):>8} tokens" for each in last.steps)
        return (head, "break-even", *steps)

    def metrics(self, summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
        """Return the break-even of each k at the least depth that all runs have in common."""
        found = [each for summary in summaries if (each := summary.result(SpeculateResult))]
        timed = [{(case.n_depth, case.k) for case in each.cases} for each in found]
        common = sorted(set.intersection(*timed)) if timed else []
        return tuple(_break_even(n_depth, k) for n_depth, k in common if n_depth == common[0][0])

    def details(self, run: Run, *, folded: bool = False, readings: Sequence[MachineReading] = ()) -> RenderableType:
        found, name = result_of(run), quant_name(run.subject)
        if found is None:
            return run_page(run, name, (), folded=folded, readings=readings)
        by = quant_names([run.subject, drafts])[1] if (drafts := found.pair.draft) else found.pair.spec_type
        heading = Text(f"{name}, drafted by {by}", style="bold")
        heading.append(f"\n{self.ending(run)}", style="not bold")
        parts: list[RenderableType] = []
        if found.cases:
            facts = [
                *_fastest(found),
                *_memory_facts(found.memory, run.subject.n_ctx_train),
                ("from", found.pair.basis),
                *_published_facts(found),
                ("llama-server", server_line(run, found)),
            ]
            parts = [AsWide(lambda width: self.table([run], width=width)), facts_table("", facts)]
        elif found.texts:
            facts = [("type of drafts", found.pair.spec_type), ("llama-server", server_line(run, found))]
            parts = [facts_table("", facts)]
        if found.texts:
            parts.insert(0, AsWide(lambda width: _texts_table(found.texts, width)))
        return run_page(run, heading, parts, folded=folded, readings=readings)

    def table(self, runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
        labels = quant_names([run.subject for run in runs]) if len(runs) > 1 else [""]
        rows = [
            (label, each)
            for label, run in zip(labels, runs, strict=True)
            if (found := result_of(run))
            for each in found.cases
        ]
        if not rows:
            return Text("\n".join(f"{label}: {self.ending(run)}" for label, run in zip(labels, runs, strict=True)))
        return _cases_table(rows, width, _captions(runs, [each for _, each in rows]))


def _break_even(n_depth: int, k: int) -> Metric:
    def expected_of(summary: QuantSummary) -> Expected | None:
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
    return estimated(metric, lambda summary: (found.low, found.high) if (found := expected_of(summary)) else None)


def _captions(runs: Sequence[Run], cases: Sequence[SpeculationCase]) -> str:
    of_server = [each.step.times.parts is None for each in cases]
    parts = [*([] if all(of_server) else [_PARTS_NOTE]), *([_SERVED_NOTE] if any(of_server) else []), _CAPTION]
    lines = [" ".join(parts), twin_caption(run.subject for run in runs)]
    if any((found := result_of(run)) and found.pair.has_random_router for run in runs):
        has_least = any(each.step.least_break_even_len for each in cases)
        lines.insert(1, f"{_MOE_NOTE} {_LEAST_NOTE}" if has_least else _MOE_NOTE)
    return "\n".join(filter(None, lines))


def _fastest(found: SpeculateResult) -> list[tuple[str, str]]:
    """Return, for each depth, the fastest k by acceptance and its speed-up."""
    facts = []
    for n_depth in found.depths:
        steps, parts = [each.step for each in found.at(n_depth)], list[str]()
        for acceptance in ACCEPTANCES:
            best = best_step(steps, acceptance)
            gain = step_text(best.speedup(mean_len(acceptance, best.times.k)), best.times.k)
            accepted = f"{format_percent(acceptance)}{'' if parts else ' accepted'}"
            parts.append(f"{accepted}: {best.times.k}, {gain}x")
        facts.append((f"fastest k, depth {format_count(n_depth)}", "; ".join(parts)))
    return facts


def _texts_table(texts: Sequence[DraftedText], width: int) -> RenderableType:
    """Return what was generated with the draft, and whether the texts are those without it."""
    different = [f"{each.name} {each.difference}" for each in texts if each.difference]
    n_tokens = in_words([format_count(n) for n in sorted({each.n_tokens for each in texts})])
    equality = f"texts that differ from those without drafts: {'; '.join(different)}" if different else "same texts"
    of_drafted = right("of drafted", (format_percent(each.accepted_share) for each in texts), "accepted", 3)
    by_position = (", ".join(map(format_percent, each.acceptance[:4])) for each in texts)
    return fitted_table(
        [
            names("text", (each.name for each in texts)),
            right("k", (str(each.k or "") for each in texts)),
            right("without", (format_number(each.plain_tok_s) for each in texts), "tok/s", 1),
            right("with", (format_number(each.drafted_tok_s) for each in texts), "tok/s", 1),
            right("gain", (expected_text(each.gain) for each in texts), "times", stays=True),
            right("expected", (format_number(each.expected_gain, 2) for each in texts), "times", 2),
            right("per step", (format_number(each.mean_len) for each in texts), "tokens", stays=True),
            *([] if of_drafted.is_empty else [of_drafted]),
            right("by position", by_position, "accepted", 4, stays=True),
        ],
        title="Generated at temperature 0, in turn without and with the draft",
        width=width,
        caption=f"{n_tokens} tokens of each; {equality}",
    )


def _published_facts(found: SpeculateResult) -> list[tuple[str, str]]:
    """Return the speed-up at the lengths that others published for this method; other methods have other costs."""
    method = METHODS.get(found.pair.spec_type or "draft-simple")
    gains = [each for each in published_gains(found) if each.figure.method == method]
    if not gains:
        return []
    lens, speedups = [each.figure.mean_len for each in gains], [each.speedup.value for each in gains]
    low, high = (format_number(length) for length in (min(lens), max(lens)))
    slow, middle, fast = (format_number(x, 2) for x in (min(speedups), statistics.median(speedups), max(speedups)))
    text = f"{slow} to {fast}x, median {middle}x (L {low} to {high}, {counted(len(gains), 'figure')})"
    return [("at others' lengths", text)]


def _memory_facts(memory: PairMemory | None, n_ctx_train: int | None) -> list[tuple[str, str]]:
    if memory is None:
        return []
    outputs = f", {format_bytes(memory.output_bytes)} more outputs" if memory.output_bytes else ""
    draft = f"{format_bytes(memory.draft_weight_bytes)} weights, {format_bytes(memory.draft_context_bytes)} context"
    both = f"{format_bytes(memory.needed_bytes)} of {format_bytes(memory.usable_bytes)} with the model"
    longest, alone = format_count(memory.max_n_ctx), format_count(memory.max_n_ctx_alone)
    is_beyond = n_ctx_train is not None and n_ctx_train < (memory.max_n_ctx or 0)
    trained = f"; trained for {format_count(n_ctx_train)}" if is_beyond else ""
    return [
        (f"draft, n_ctx {format_count(memory.n_ctx)}", f"{draft}{outputs}; {both}"),
        ("max n_ctx", f"{longest} with the draft, {alone} without{trained}"),
    ]


def _cases_table(rows: Sequence[tuple[str, SpeculationCase]], width: int | None, caption: str) -> RenderableType:
    cases = [each for _, each in rows]
    times = [each.step.times for each in cases]

    def gains(length: float) -> Cells:
        found = (each.step.speedup(length) if length <= each.k + 1 else None for each in cases)
        known = (expected_text(gain).split()[0] if gain else "" for gain in found)  # as precise as its interval
        return right(f"x{length:g}", known, "", 1)

    parts = [right("step", (format_number(each.step_ms) for each in times), "ms", 3, stays=True)]
    timed = [each.parts for each in times]
    if any(timed):
        parts = [
            right("verify", (format_number(each.verify_ms if each else None) for each in timed), "ms", 3),
            right("draft", (format_number(each.draft_ms if each else None) for each in timed), "ms", 4, stays=True),
            right("reread", (format_number(each.reread_ms if each else None) for each in timed), "ms", 5, stays=True),
        ]
    least = [right("least", (format_number(each.step.least_break_even_len) for each in cases), "tokens")]
    least = least if any(each and each.repeated_ms is not None for each in timed) else []
    return fitted_table(
        [
            *([names("quant", (name for name, _ in rows))] if any(name for name, _ in rows) else []),
            right("depth", (format_count(each.n_depth) for each in cases), stays=True),
            right("k", (str(each.k) for each in cases), stays=True),
            right("T1", (format_number(each.t1_ms) for each in times), "ms", 2, stays=True),
            *parts,
            right("break-even", (step_text(each.step.break_even, each.k) for each in cases), "tokens", stays=True),
            *least,
            right("accepted", (format_percent(needed_acceptance(each)) for each in cases), "", stays=True),
            *(gains(length) for length in _LENS if length <= max(each.k for each in cases) + 1),
            right("all k+1", (step_text(each.step.best_speedup, each.k) for each in cases), "times", 6),
        ],
        labels=[f"{name} depth {each.n_depth}, k {each.k}".strip() for name, each in rows],
        dim=[each.step.best_speedup.value <= 1 for each in cases],
        width=width,
        caption=caption,
    )


def _figure(n_depth: int, runs: Sequence[PlottedRun], found: Sequence[SpeculateResult | None]) -> Figure:
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
    return Figure(f"speculate-d{n_depth}", name, "", "mean tokens per step", "", tuple(curves), end, y_low=0.0)


PRESENTER = SpeculatePresenter()
