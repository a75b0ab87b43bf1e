"""What a search may change: the values of each setting, those with the largest effect first, and how they combine."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ggbench.engines.llama.config import LlamaConfig, SplitMode
from ggbench.errors import UsageError
from ggbench.experiments.tune.record import TuneSettings, changes

Choice = Mapping[str, Any]
"""Fields of a setup with the values that they get together."""

_UBATCHES = (128, 256, 1024, 2048)
_SPLITS: tuple[SplitMode, ...] = ("row", "none")
_SERVER_SPLITS: tuple[SplitMode, ...] = ("none",)
"""Rows are split over CUDA and SYCL devices alone."""
_MOST_COMBINED = 5


class Known(msgspec.Struct, frozen=True):
    """What decides which settings are worth a try."""

    n_logical: int
    """Threads that the machine runs at once."""
    n_cores: int
    flash_attn: bool | None
    """What the baseline's became; None where that is unknown."""
    placements: Sequence[Choice] = ()
    """Other ways to split a model that does not fit on the GPU."""
    n_gpus: int = 0
    """GPUs that hold layers; 0 for main memory alone."""


def choices(baseline: LlamaConfig, settings: TuneSettings, known: Known) -> list[tuple[Choice, ...]]:
    """Return the values of each setting other than the baseline's, by falling expected effect.

    Flash attention comes first: on a CPU it can triple the cost of a long context (scripts/EVIDENCE.md). `n_batch`
    only makes room for `n_ubatch`, which decides how much is computed at once.
    """
    of_decode, of_prefill = settings.objective != "prefill", settings.objective != "decode"
    threads = baseline.threads or known.n_cores
    batch_threads = baseline.threads_batch or threads
    counts = (known.n_logical, known.n_cores, threads - 1, threads // 2)
    switches = ("off",) if known.flash_attn else ("on",) if known.flash_attn is False else ("off", "on")
    splits = _SERVER_SPLITS if baseline.rpc_servers else _SPLITS
    computes_on_cpu = not known.n_gpus or bool(known.placements)
    found: list[list[Choice]] = [
        [{"flash_attn": each} for each in switches],
        list(known.placements),
        [{"threads": each} for each in _others(counts, threads)] if of_decode and computes_on_cpu else [],
        [{"threads_batch": each} for each in _others(counts, batch_threads)] if of_prefill and computes_on_cpu else [],
        [{"type_k": each, "type_v": each} for each in settings.kv_types],
        [
            {"n_ubatch": each, "n_batch": max(each, baseline.n_batch)}
            for each in _UBATCHES
            if of_prefill and each != baseline.n_ubatch and each <= settings.n_prompt
        ],
        [{"split_mode": each} for each in splits if known.n_gpus > 1 and baseline.main_gpu is None],
        [{"mmap": not baseline.mmap}] if computes_on_cpu and baseline.memory_limit_bytes is None else [],
    ]
    return [tuple(each) for each in found if each]


def singles(baseline: LlamaConfig, dimensions: Iterable[Iterable[Choice]]) -> list[LlamaConfig]:
    """Return a setup for each value, which changes that one alone; none that llama.cpp refuses."""
    found = (merged(baseline, [choice]) for dimension in dimensions for choice in dimension)
    return [each for each in found if each is not None]


def combined(
    baseline: LlamaConfig, good: Sequence[LlamaConfig], open_: Sequence[LlamaConfig], tried: Sequence[LlamaConfig]
) -> list[LlamaConfig]:
    """Return combinations of setups that were better alone, and of the best with those that may be; none that was
    tried.

    First all that go together; then these, and each that does not go with them, with each that may be better; then the
    other pairs. The best of `good` and of `open_` come first; each has at most one value of a setting.
    """
    changed, perhaps = ([changes(baseline, each) for each in setups] for setups in (good, open_))
    if not changed:
        return []
    together: list[dict[str, object]] = []
    for each in changed:
        if merged(baseline, [*together, each]) is not None:
            together.append(each)
    bests = [together, *([each] for each in changed if each not in together)]
    sets = [
        together,
        *([*best, each] for each in perhaps for best in bests),
        *map(list, itertools.combinations(changed, 2)),
    ]
    found = (merged(baseline, each) for each in sets if len(each) > 1)
    new = dict.fromkeys(each for each in found if each is not None and each not in tried)
    return list(new)[:_MOST_COMBINED]


def merged(baseline: LlamaConfig, together: Iterable[Choice]) -> LlamaConfig | None:
    """Return the baseline with these changes; None where two disagree, or llama.cpp refuses what they make."""
    fields: dict[str, Any] = {}
    for choice in together:
        if any(name in fields and fields[name] != value for name, value in choice.items()):
            return None
        fields |= choice
    setup = replace(baseline, **fields)
    try:
        setup.check()
    except UsageError:
        return None
    return None if setup == baseline else setup


def _others(values: Iterable[int], own: int) -> list[int]:
    return [each for each in dict.fromkeys(values) if each > 0 and each != own]
