"""Show speculative decoding: whether it pays, the cost of each step, and the speed-up by accepted tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ggbench.engines.llama.config import LlamaConfig
from ggbench.expect.drafts import expected_acceptance, kind_of
from ggbench.experiments.speculate.record import DraftedText, SpeculateResult, SpeculationCase, result_of
from ggbench.runs.run import Run
from ggbench.show.answer import Answer, Facts, Part, Table
from ggbench.show.figure import Figure, bounded_text, interval_text, member, reader
from ggbench.show.metric import Metric
from ggbench.show.names import twin_notes
from ggbench.show.presenter import Presenter
from ggbench.show.run_answer import run_answer
from ggbench.show.run_documents import RunDocuments
from ggbench.show.run_figures import CACHE_TYPES
from ggbench.show.server_line import file_words, server_line
from ggbench.show.words import say
from ggbench.stats.intervals import Estimate
from ggbench.stats.speculation import best_step, mean_len
from ggbench.text import in_words
from ggbench.units import format_number, format_percent

_RULE = "Drafts pay above the break-even, in mean tokens of a step. The gain is that of a typical published acceptance."


def _best(run: Run) -> SpeculationCase | None:
    """Return the best case at the least depth."""
    found = result_of(run)
    return best_case(found.least) if found and found.cases else None


def _of_result(key: str, meaning: str, get: Callable[[Run, SpeculateResult], str]) -> Figure[Run]:
    def value(run: Run) -> str | None:
        found = result_of(run)
        return get(run, found) or None if found else None

    return Figure(key, "", value, meaning=meaning)


def verdict(found: SpeculateResult) -> str:
    """Return on which texts drafts pay or, without texts, from which mean length at the least depth; empty without
    either.

    `Drafts pay above 1.94 ±0.05 tokens a step: 42 % of 3 drafted accepted.`
    """
    if found.texts:
        return " ".join(_of_texts(found.texts))
    return _of_case(best_case(found.least)) if found.cases else ""


def _of_case(case: SpeculationCase) -> str:
    """Return from which mean length steps pay."""
    share, even, gain = case.needed_acceptance, case.step.break_even, case.step.best_speedup
    key = "pays"
    if share is None or (even.low <= 1 and even.high > case.k + 1):
        key = "never" if gain.high < 1 else "not_shown"
    length = interval_text(even)
    return say(f"speculate.{key}", length=length, k=case.k, share=format_percent(share), gain=gain)


def _of_texts(texts: Sequence[DraftedText]) -> list[str]:
    """Return `Drafts pay on code (1.50 ±0.05 times).`, and so on: those that they slow down last."""
    named: dict[str, list[str]] = {"faster": [], "undecided": [], "slower": []}
    for each in texts:
        named[_how(each.gain)].append(say("speculate.text", name=each.name, gain=each.gain))
    return [say(f"speculate.{how}", texts=in_words(found)) for how, found in named.items() if found]


def _how(gain: Estimate) -> str:
    if gain.high < 1:
        return "slower"
    return "faster" if gain.low > 1 else "undecided"


def best_case(cases: Sequence[SpeculationCase]) -> SpeculationCase:
    """Return the case that pays at the lowest acceptance or, if none does, is fastest when all is accepted."""
    paying = [each for each in cases if each.needed_acceptance is not None]
    if paying:
        return min(paying, key=lambda each: each.needed_acceptance or 0.0)
    return max(cases, key=lambda each: each.step.best_speedup.value)


def _may_pay(found: SpeculateResult) -> bool:
    if found.texts and all(each.gain.high < 1 for each in found.texts):
        return False
    if found.cases:
        return any(each.step.break_even.value < each.k + 1 for each in found.cases)
    return any(each.gain.low > 1 for each in found.texts)


def drafting_line(run: Run, found: SpeculateResult) -> str:
    """Return the llama-server command with these drafts; empty if none pays, or every text was slower with them.

    k is that of the texts, else the fastest at a typical acceptance.
    """
    if not _may_pay(found):
        return ""
    if found.texts:
        k = found.texts[0].k
    else:
        steps = [each.step for each in found.least]
        k = best_step(steps, expected_acceptance(kind_of(found.pair.spec_type)).value).times.k
    setup = LlamaConfig.of(run.setup).as_asked()
    draft = file_words(found.pair.draft, "-md", "-hfd") if found.pair.draft else ()
    return server_line(run, setup, draft=draft, spec_type=found.pair.spec_type, n_draft=k)


_BREAK_EVEN = Figure[Run](
    "break_even_len", "break-even", reader("step.break_even", _best), bounded_text, "tokens",
    "Mean tokens above which the best step at the least depth pays.", better="less", is_estimate=True,
)  # fmt: skip
_DOCUMENTED = (
    *CACHE_TYPES,
    _of_result("verdict", "Whether drafts pay.", lambda run, found: verdict(found)),
    _of_result("llama_server", "The command that drafts; null if no draft pays.", drafting_line),
    Figure[Run](
        "k", "", reader("k", _best), meaning="Tokens drafted in the best step at the least depth."
    ),
    _BREAK_EVEN,
    Figure[Run](
        "break_even_acceptance", "", reader("needed_acceptance", _best),
        meaning="Acceptance of each drafted token, after those before it, that gives this length; null if none does.",
    ),
)  # fmt: skip


class SpeculatePresenter(Presenter):
    kind = "speculate"
    documents = RunDocuments(
        "speculate", _DOCUMENTED, "Costs of speculative decoding, and the accepted tokens that it needs to pay."
    )
    has_line = False
    has_samples = False
    no_answer = "no step was measured"
    headline = _BREAK_EVEN

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

    def metrics(self, runs: Sequence[Run]) -> tuple[Metric, ...]:
        return (Metric(_BREAK_EVEN, "break-even", is_timed=True),)

    def details(self, run: Run) -> Answer:
        found = result_of(run)
        if found is None:
            return run_answer(run, Answer(self.ending(run)))
        front: Part = Table(_TEXTS, found.texts, _TURNS) if found.texts else _cases_table(found.least)
        notes = twin_notes([run.subject])
        is_all = found.cases == (() if found.texts else found.least)
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
