"""What follows from a speculate result: from where it pays, and how to start llama-server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ggbench.engines.llama.config import LlamaConfig
from ggbench.expect.drafts import expected_acceptance, kind_of
from ggbench.experiments.speculate.record import DraftedText, SpeculateResult, SpeculationCase
from ggbench.runs.run import Run
from ggbench.show.figure import interval_text
from ggbench.show.server_line import file_words, server_line
from ggbench.show.words import say
from ggbench.stats.intervals import Estimate
from ggbench.stats.speculation import best_step
from ggbench.text import in_words
from ggbench.units import format_percent


def verdict(found: SpeculateResult) -> str:
    """Return on which texts drafts pay or, without texts, from which mean length at the least depth; empty without
    either.

    `Drafts pay above 1.94 ±0.05 tokens a step: 42 % of 3 drafted accepted.`
    """
    if found.texts:
        return " ".join(_of_texts(found.texts))
    return _of_case(best_case(found.at(found.depths[0]))) if found.cases else ""


def _of_case(case: SpeculationCase) -> str:
    """Return from which mean length steps pay."""
    share, even, gain = case.needed_acceptance, case.step.break_even, case.step.best_speedup
    key = "pays"
    if share is None or (even.low <= 1 and even.high > case.k + 1):
        key = "never" if gain.high < 1 else "not_shown"
    length = interval_text(even)
    return say(f"speculate.{key}", length=length, k=case.k, share=format_percent(share), gain=gain)


def _how(gain: Estimate) -> Literal["faster", "undecided", "slower"]:
    if gain.high < 1:
        return "slower"
    return "faster" if gain.low > 1 else "undecided"


def _of_texts(texts: Sequence[DraftedText]) -> list[str]:
    """Return `Drafts pay on code (1.50 ±0.05 times).`, and so on: those that they slow down last."""
    found = []
    for how in ("faster", "undecided", "slower"):
        named = [
            say("speculate.text", name=each.name, gain=each.gain) for each in texts if _how(each.gain) == how
        ]
        found += [say(f"speculate.{how}", texts=in_words(named))] if named else []
    return found


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
        steps = [each.step for each in found.at(found.depths[0])]
        k = best_step(steps, expected_acceptance(kind_of(found.pair.spec_type)).value).times.k
    setup = LlamaConfig.of(run.head.setup).as_asked()
    draft = file_words(found.pair.draft, "-md", "-hfd") if found.pair.draft else ()
    return server_line(run, setup, draft=draft, spec_type=found.pair.spec_type, n_draft=k)
