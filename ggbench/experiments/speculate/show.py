"""Show speculative decoding: whether it pays, the cost of each step, and the speed-up by accepted tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from ggbench.expect.drafts import expected_acceptance
from ggbench.experiments.speculate.record import SpeculateResult, SpeculationCase, result_of
from ggbench.experiments.speculate.verdict import best_case, drafting_line, verdict
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show.answer import Answer, Facts, Part, Table
from ggbench.show.figure import Figure, bounded_text, member, reader
from ggbench.show.metric import Metric
from ggbench.show.names import twin_notes
from ggbench.show.presenter import Presenter
from ggbench.show.run_answer import run_answer
from ggbench.show.run_documents import RunDocuments
from ggbench.show.run_figures import CACHE_TYPES
from ggbench.show.server_line import file_words
from ggbench.stats.speculation import mean_len
from ggbench.units import format_number, format_percent

_RULE = "Drafts pay above the break-even, in mean tokens of a step. The gain is that of a typical published acceptance."


def _best(summary: QuantSummary) -> SpeculationCase | None:
    """Return the best case at the least depth."""
    found = result_of(summary.run)
    return best_case(found.at(found.depths[0])) if found and found.cases else None


def _of_result(key: str, meaning: str, get: Callable[[Run, SpeculateResult], str]) -> Figure[QuantSummary]:
    def value(summary: QuantSummary) -> str | None:
        found = result_of(summary.run)
        return get(summary.run, found) or None if found else None

    return Figure(key, "", value, meaning=meaning)


_BREAK_EVEN = Figure[QuantSummary](
    "break_even_len", "break-even", reader("step.break_even", _best), bounded_text, "tokens",
    "Mean tokens above which the best step at the least depth pays.", better="less", is_estimate=True,
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
        "break_even_acceptance", "", reader("needed_acceptance", _best),
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

    def metrics(self, summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
        return (Metric(_BREAK_EVEN, "break-even", is_timed=True),)

    def details(self, run: Run) -> Answer:
        found = result_of(run)
        if found is None:
            return run_answer(run, Answer(self.ending(run)))
        least = found.at(found.depths[0]) if found.cases else ()
        front: Part = Table(_TEXTS, found.texts, _TURNS) if found.texts else _cases_table(least)
        notes = twin_notes([run.subject])
        is_all = found.cases == (() if found.texts else least)
        why: list[Part] = [] if is_all else [_cases_table(found.cases)]
        draft = " ".join(file_words(found.pair.draft, "-md", "-hfd")) if found.pair.draft else ""
        why.append(Facts([("break-even", _RULE), ("draft", draft), ("type", found.pair.spec_type)]))
        answer = Answer(self.ending(run), drafting_line(run, found), [front], notes, why)
        return run_answer(run, answer)


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
_TURNS = "Continued at temperature 0, in turn without and with drafts"


def _typical(case: SpeculationCase) -> float:
    """Return the speed-up at a typical acceptance of draft models."""
    return case.step.speedup(mean_len(expected_acceptance("draft").value, case.k)).value


_CASES = (
    member("n_depth", "depth"),
    member("k", "k"),
    member("t1_ms", "T1", path="step.times.t1_ms", unit="ms", priority=2),
    member("step_ms", "step", path="step.times.step_ms", unit="ms", priority=3),
    member("break_even_len", "break-even", bounded_text, "step.break_even", unit="tokens"),
    member("break_even_acceptance", "accepted", format_percent, "needed_acceptance"),
    Figure("typical_gain", "gain", _typical, unit="times", priority=1),
)


def _cases_table(cases: Sequence[SpeculationCase]) -> Table[SpeculationCase]:
    return Table(_CASES, cases, style=lambda case: "dim" if case.step.best_speedup.value <= 1 else "")


PRESENTER = SpeculatePresenter()
