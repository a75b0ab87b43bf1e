"""What follows from a speculate result: from where it pays, with the lengths that others published, and how to start
llama-server.
"""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Callable, Mapping, Sequence

import msgspec

from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.flags import server_flags
from ggbench.experiments.speculate.record import DraftedText, SpeculateResult, SpeculationCase
from ggbench.models.published.acceptance import Acceptance, Method, load_acceptance
from ggbench.models.subject import Subject
from ggbench.runs.run import Run
from ggbench.show.text import expected_text
from ggbench.stats.intervals import Expected
from ggbench.stats.speculation import TYPICAL_ACCEPTANCE, MeasuredStep, acceptance_of, best_step
from ggbench.text import in_words
from ggbench.units import format_count, format_number, format_percent

ACCEPTANCES = (0.5, 0.7, 0.9)
"""Shares of drafted tokens accepted, each after those before, for which the fastest k is named."""
METHODS: Mapping[str, Method] = {
    "draft-simple": "draft", "draft-mtp": "mtp", "draft-eagle3": "eagle3", "draft-dflash": "dflash",
    "ngram-simple": "ngram",
}  # fmt: skip
"""Published methods that llama.cpp has, by its types of drafts; others draft trees of tokens."""


def needed_acceptance(case: SpeculationCase) -> float | None:
    """Return the acceptance above which a case pays; None if not even full acceptance is enough."""
    return acceptance_of(case.step.break_even.value, case.k)


def is_undecided(expected: Expected, k: int) -> bool:
    """Return whether a break-even, or a gain, of steps with k drafted tokens may be anything from 1 to k + 1."""
    return expected.low <= 1 and expected.high > k + 1


def step_text(expected: Expected, k: int) -> str:
    """Return `1.94 ±0.05`, or `1.5 (undecided)`."""
    if is_undecided(expected, k):
        return f"{format_number(expected.value, 2)} (undecided)"
    return expected_text(expected)


def verdict(found: SpeculateResult) -> str:
    """Return where speculation hurts, then what it gains, in one sentence; empty without a case.

    `slower below 1.94 ±0.05 tokens per step (k 3, 42 % accepted); at most 2.6 ±0.1 times as fast`, after the gains
    measured on texts. With a twin's random router, only the length if a batch needed the experts of one token is sure;
    a server's steps do not show it.
    """
    parts = _of_texts(found.texts)
    if found.memory is not None and (lack := found.memory.lack):
        parts.insert(0, f"does not fit in memory: both {lack}")
    for n_depth in found.depths:
        at = f"at depth {format_count(n_depth)} " if n_depth else ""
        case = _best(found.at(n_depth))
        share, least = needed_acceptance(case), case.step.least_break_even_len
        if is_undecided(case.step.break_even, case.k):
            length = format_number(case.step.break_even.value, 2)
            parts.append(f"{at}undecided, about {length} tokens per step (k {case.k}): measure again")
            continue
        if least is not None and least <= case.k + 1:
            sure, about = least * case.step.break_even.low / case.step.break_even.value, case.step.break_even.value
            lengths = f"{format_number(sure)}, probably below {format_number(about)} tokens per step"
            parts.append(f"{at}slower below {lengths} (k {case.k}; the twin's router is random)")
            continue
        if found.is_routed_at_random:
            length = expected_text(case.step.break_even)
            parts.append(
                f"{at}probably slower below {length} tokens per step (k {case.k}; the twin's router is random)"
            )
            continue
        if share is None:
            best = case.step.best_speedup
            how = "slower" if best.high < 1 else "no gain shown"
            parts.append(f"{at}{how} even if every drafted token is accepted ({expected_text(best)} times, k {case.k})")
            continue
        length = expected_text(case.step.break_even)
        parts.append(f"{at}slower below {length} tokens per step (k {case.k}, {format_percent(share)} accepted)")
    gains = (case.step.best_speedup for case in found.cases if not is_undecided(case.step.break_even, case.k))
    fastest = max(gains, key=lambda gain: gain.value, default=None)
    if fastest is not None and fastest.value > 1 and not found.pair.has_random_router:
        parts.append(f"at most {expected_text(fastest)} times as fast")
    return "; ".join(parts)


def _of_texts(texts: Sequence[DraftedText]) -> list[str]:
    """Return `slower on prose (0.50 ±0.05 times)`, and so on: those that are slower first."""
    said: dict[str, list[str]] = {"slower": [], "no difference shown": [], "faster": []}
    for each in texts:
        how = "slower" if each.gain.high < 1 else "faster" if each.gain.low > 1 else "no difference shown"
        said[how].append(f"{each.name} ({expected_text(each.gain)} times)")
    return [f"{how} on {in_words(names)}" for how, names in said.items() if names]


def _best(cases: Sequence[SpeculationCase]) -> SpeculationCase:
    """Return the case that surely pays at the lowest acceptance; else one that probably does, or is closest to it."""
    ends: tuple[Callable[[MeasuredStep], float | None], ...] = (
        lambda step: step.break_even.high,
        lambda step: step.break_even.value,
        lambda step: step.least_break_even_len,
    )
    for end in ends:
        lengths = [(length, each) for each in cases if (length := end(each.step)) is not None]
        shares = [(acceptance_of(length, each.k), each) for length, each in lengths]
        if paying := [(share, each) for share, each in shares if share is not None]:
            return min(paying, key=lambda found: found[0])[1]
    return max(cases, key=lambda each: each.step.best_speedup.value)


def server_line(run: Run, found: SpeculateResult) -> str:
    """Return the llama-server command with these drafts; empty if none pays, or every text was slower with them.

    k is the fastest at the acceptance of the texts, else at a typical one; of a server, the one that was measured.
    """
    setup, texts = LlamaConfig.of(run.head.setup).as_asked(), found.texts
    if texts and all(each.gain.high < 1 for each in texts):
        return ""
    if found.cases:
        steps = [each.step for each in found.at(found.depths[0])]
        lengths = [(each.least_break_even_len or each.break_even.value, each.times.k) for each in steps]
        if not found.is_routed_at_random and not any(length < k + 1 for length, k in lengths):
            return ""
        shares = [share for each in texts if each.k and (share := acceptance_of(each.mean_len, each.k)) is not None]
        k: int | None = best_step(steps, statistics.median(shares) if shares else TYPICAL_ACCEPTANCE).times.k
    elif any(each.gain.low > 1 for each in texts):
        k = texts[0].k
    else:
        return ""
    draft = ["-md", _file(found.pair.draft)] if found.pair.draft else []
    flags = server_flags(
        setup, on_gpu=run.memory.weights_on_gpu, draft=draft, spec_type=found.pair.spec_type, n_draft=k
    )
    return shlex.join(["llama-server", "-m", _file(run.subject), *flags])


def _file(subject: Subject) -> str:
    name = subject.model.removeprefix("twin:").rpartition("/")[2]
    return subject.file or f"{name}-{subject.quant}.gguf"


class PublishedGain(msgspec.Struct, frozen=True):
    """A length that others published, and the speed-up that this pair would have with steps of that length.

    Their drafts cost other times: a head costs less than a draft model, and n-grams cost nothing.
    """

    figure: Acceptance
    k: int
    """Drafted tokens of the step whose cost was taken: nearest to the published number, else of the fastest step."""
    speedup: Expected


def published_gains(found: SpeculateResult) -> tuple[PublishedGain, ...]:
    """Return the gains at the least depth, in the order of `METHODS`; none of lengths beyond the measured k."""
    cases = found.at(found.depths[0]) if found.depths else ()
    rows = [row for method in METHODS.values() for row in load_acceptance() if row.method == method]
    able = ((row, [case for case in cases if case.k + 1 >= row.mean_len]) for row in rows)
    return tuple(_gain(row, reaching) for row, reaching in able if reaching)


def _gain(row: Acceptance, cases: Sequence[SpeculationCase]) -> PublishedGain:
    if row.n_draft is None:
        case = max(cases, key=lambda each: each.step.speedup(row.mean_len).value)
    else:
        case = min(cases, key=lambda each: abs(each.k - (row.n_draft or 0)))
    return PublishedGain(row, case.k, case.step.speedup(row.mean_len))
