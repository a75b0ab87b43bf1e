"""What follows from a speculate result: from where it pays, and how to start llama-server."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.flags import server_flags
from ggbench.experiments.speculate.record import DraftedText, SpeculateResult, SpeculationCase
from ggbench.models.subject import Subject
from ggbench.runs.run import Run
from ggbench.show.text import expected_text
from ggbench.stats.intervals import Estimate
from ggbench.stats.speculation import TYPICAL_ACCEPTANCE, acceptance_of, best_step
from ggbench.text import in_words
from ggbench.units import format_count, format_number, format_percent


def needed_acceptance(case: SpeculationCase) -> float | None:
    """Return the acceptance above which a case pays; None if not even full acceptance is enough."""
    return acceptance_of(case.step.break_even.value, case.k)


def is_undecided(expected: Estimate, k: int) -> bool:
    """Return whether a break-even, or a gain, of steps with k drafted tokens may be anything from 1 to k + 1."""
    return expected.low <= 1 and expected.high > k + 1


def verdict(found: SpeculateResult) -> str:
    """Return where speculation hurts, then what it gains, in one sentence; empty without a case.

    `slower below 1.94 ±0.05 tokens per step (k 3, 42 % accepted); at most 2.6 ±0.1 times as fast`, after the gains
    measured on texts.
    """
    parts = _of_texts(found.texts)
    if found.memory is not None and (lack := found.memory.lack):
        parts.insert(0, f"does not fit in memory: both {lack}")
    for n_depth in found.depths:
        at = f"at depth {format_count(n_depth)} " if n_depth else ""
        parts.append(at + _of_case(best_case(found.at(n_depth)), found.pair.has_random_router))
    decided = [each.step.best_speedup for each in found.cases if not is_undecided(each.step.break_even, each.k)]
    fastest = max(decided, key=lambda gain: gain.value, default=None)
    if fastest is not None and fastest.value > 1 and not found.pair.has_random_router:
        parts.append(f"at most {expected_text(fastest)} times as fast")
    return "; ".join(parts)


def _of_case(case: SpeculationCase, has_random_router: bool) -> str:
    """Return from which mean length steps pay; a trained router may need more or fewer experts than a twin's."""
    share, even = needed_acceptance(case), case.step.break_even
    if is_undecided(even, case.k):
        return f"undecided, about {format_number(even.value, 2)} tokens per step (k {case.k}): measure again"
    length = f"below {expected_text(even)} tokens per step (k {case.k}"
    if has_random_router:
        return f"probably slower {length}; the twin's router is random)"
    if share is not None:
        return f"slower {length}, {format_percent(share)} accepted)"
    best = case.step.best_speedup
    how = "slower" if best.high < 1 else "no gain shown"
    return f"{how} even if every drafted token is accepted ({expected_text(best)} times, k {case.k})"


def _how(gain: Estimate) -> str:
    if gain.high < 1:
        return "slower"
    return "faster" if gain.low > 1 else "no difference shown"


def _of_texts(texts: Sequence[DraftedText]) -> list[str]:
    """Return `slower on prose (0.50 ±0.05 times)`, and so on: those that are slower first."""
    found = []
    for how in ("slower", "no difference shown", "faster"):
        named = [f"{each.name} ({expected_text(each.gain)} times)" for each in texts if _how(each.gain) == how]
        found += [f"{how} on {in_words(named)}"] if named else []
    return found


def best_case(cases: Sequence[SpeculationCase]) -> SpeculationCase:
    """Return the case that pays at the lowest acceptance or, if none does, is fastest when all is accepted."""
    paying = [(share, each) for each in cases if (share := needed_acceptance(each)) is not None]
    if paying:
        return min(paying, key=lambda found: found[0])[1]
    return max(cases, key=lambda each: each.step.best_speedup.value)


def _may_pay(found: SpeculateResult) -> bool:
    if found.texts and all(each.gain.high < 1 for each in found.texts):
        return False
    if found.cases:
        return found.pair.has_random_router or any(
            each.step.break_even.value < each.k + 1 for each in found.cases
        )
    return any(each.gain.low > 1 for each in found.texts)


def server_line(run: Run, found: SpeculateResult) -> str:
    """Return the llama-server command with these drafts; empty if none pays, or every text was slower with them.

    k is that of the texts, else the fastest at a typical acceptance.
    """
    if not _may_pay(found):
        return ""
    if found.texts:
        k = found.texts[0].k
    else:
        k = best_step([each.step for each in found.at(found.depths[0])], TYPICAL_ACCEPTANCE).times.k
    setup = LlamaConfig.of(run.head.setup).as_asked()
    draft = ["-md", _file(found.pair.draft)] if found.pair.draft else []
    flags = server_flags(
        setup, on_gpu=run.memory.weights_on_gpu, draft=draft, spec_type=found.pair.spec_type, n_draft=k
    )
    return shlex.join(["llama-server", "-m", _file(run.subject), *flags])


def _file(subject: Subject) -> str:
    name = subject.model.removeprefix("twin:").rpartition("/")[2]
    return subject.file or f"{name}-{subject.quant}.gguf"
