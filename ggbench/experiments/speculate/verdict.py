"""What a speculate result says in words: from where it pays, which k is fastest, and how to start llama-server."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.flags import server_flags
from ggbench.experiments.speculate.record import DraftedText, PairMemory, SpeculateResult, SpeculationCase
from ggbench.models.subject import Subject
from ggbench.runs.run import Run
from ggbench.show.text import expected_text
from ggbench.stats.speculation import TYPICAL_ACCEPTANCE, acceptance_of, best_step
from ggbench.text import in_words
from ggbench.units import format_bytes, format_count, format_number, format_percent

ACCEPTANCES = (0.5, 0.6, 0.7, 0.8, 0.9)
"""Shares of drafted tokens accepted, each after those before, for which the fastest k is named."""


def needed_acceptance(case: SpeculationCase) -> float | None:
    """Return the acceptance above which a case pays; None if not even full acceptance is enough."""
    return acceptance_of(case.step.break_even.value, case.k)


def verdict(found: SpeculateResult) -> str:
    """Return where speculation hurts, then what it gains, in one sentence; empty without a case.

    `slower below 1.94 ±0.05 tokens per step (k 3, 42 % accepted); at most 2.6 times as fast`, after the gains measured
    on texts.
    """
    parts, most, memory = _of_texts(found.texts), 0.0, found.memory
    if memory is not None and (memory.needed_bytes or 0) > memory.usable_bytes:
        parts.insert(0, f"does not fit in memory: {_needed_text(memory)}")
    for n_depth in found.depths:
        at = f"at depth {format_count(n_depth)} " if n_depth else ""
        case = _best(found.at(n_depth))
        share = needed_acceptance(case)
        if share is None:
            best = case.step.best_speedup
            how = "slower" if best.high < 1 else "no gain shown"
            parts.append(f"{at}{how} even if every drafted token is accepted ({expected_text(best)} times, k {case.k})")
            continue
        most = max(most, *(each.step.best_speedup.value for each in found.at(n_depth)))
        length = expected_text(case.step.break_even)
        parts.append(f"{at}slower below {length} tokens per step (k {case.k}, {format_percent(share)} accepted)")
    if most:
        parts.append(f"at most {format_number(most)} times as fast")
    return "; ".join(parts)


def _needed_text(memory: PairMemory) -> str:
    """Return `both need 5.1 GiB of 4 GiB at n_ctx 4,352`."""
    needed, usable = format_bytes(memory.needed_bytes), format_bytes(memory.usable_bytes)
    return f"both need {needed} of {usable} at n_ctx {format_count(memory.n_ctx)}"


def _of_texts(texts: Sequence[DraftedText]) -> list[str]:
    """Return `slower on prose (0.50 ±0.05 times)`, and so on: those that are slower first."""
    said: dict[str, list[str]] = {"slower": [], "no difference shown": [], "faster": []}
    for each in texts:
        how = "slower" if each.gain.high < 1 else "faster" if each.gain.low > 1 else "no difference shown"
        said[how].append(f"{each.name} ({expected_text(each.gain)} times)")
    return [f"{how} on {in_words(names)}" for how, names in said.items() if names]


def _best(cases: Sequence[SpeculationCase]) -> SpeculationCase:
    """Return the case that surely pays at the lowest acceptance; else one that probably does, or is closest to it."""
    for end in ("high", "value"):
        lengths = [(getattr(each.step.break_even, end), each) for each in cases]
        shares = [(acceptance_of(length, each.k), each) for length, each in lengths]
        if paying := [(share, each) for share, each in shares if share is not None]:
            return min(paying, key=lambda found: found[0])[1]
    return max(cases, key=lambda each: each.step.best_speedup.value)


def server_line(run: Run, found: SpeculateResult) -> str:
    """Return the llama-server command with this draft, and k for a typical acceptance; empty if none pays."""
    steps = [each.step for each in found.at(found.depths[0])] if found.depths else []
    if found.draft is None or not any(each.best_speedup.value > 1 for each in steps):
        return ""
    setup = LlamaConfig.of(run.head.setup).as_asked()
    words = ["llama-server", "-m", _file(run.subject)]
    words += server_flags(setup, on_gpu=run.memory.weights_on_gpu, draft=["-md", _file(found.draft)])
    return shlex.join([*words, "--spec-draft-n-max", str(best_step(steps, TYPICAL_ACCEPTANCE).times.k)])


def _file(subject: Subject) -> str:
    name = subject.model.removeprefix("twin:").rpartition("/")[2]
    return subject.file or f"{name}-{subject.quant}.gguf"
