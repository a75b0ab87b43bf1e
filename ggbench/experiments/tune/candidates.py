"""What a model takes under each of several setups, by llama.cpp's allocator run dry, and which of them fit."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ggbench.engines.contract import Engine
from ggbench.engines.endings import EngineEnded
from ggbench.engines.llama.config import LlamaConfig, SplitMode
from ggbench.errors import UsageError
from ggbench.experiments.tune.record import TuneSettings, changes
from ggbench.gguf_file.model_file import ModelFile
from ggbench.machine.gpus import list_gpus
from ggbench.sizing.budget import SearchBudget, search_budget
from ggbench.sizing.cluster import device_memories
from ggbench.sizing.dry_allocator import DryAllocator
from ggbench.sizing.placement import Placement
from ggbench.units import KV_CELLS, format_bytes

Placed = Mapping[str, Any]
"""Fields of a setup that say where tensors lie, with their values."""

_FFN = r"blk\.({})\.ffn_(up|down|gate)\.weight=CPU"


class SetupSize(msgspec.Struct, frozen=True):
    """One setup before it is loaded."""

    obstacle: str = ""
    """Why it cannot be tried, in one line; empty where it fits as far as is known."""
    flash_attn: bool | None = None
    """What `auto` becomes; None where llama.cpp does not say."""


class SetupSizes:
    """Sizes setups of one file within what was free at first; every question starts a dry worker, and ends it."""

    def __init__(self, launch: Callable[[], Engine], file: ModelFile, setup: LlamaConfig) -> None:
        """`setup` has its n_ctx and its threads."""
        self._launch, self._file, self._setup = launch, file, setup
        self._budget: SearchBudget | None = None

    @property
    def on_gpu(self) -> bool:
        """Whether a GPU's memory is what limits; known after the first sizing."""
        return self._budget is not None and self._budget.on_gpu

    @property
    def n_devices(self) -> int:
        """How many devices of this and other machines hold layers; 0 for main memory alone, or where it is unknown."""
        if self._budget is None or not self._budget.on_gpu:
            return 0
        return len(self._budget.planned.devices) or len(list_gpus())

    def of(self, setups: Sequence[LlamaConfig]) -> list[SetupSize]:
        """Return the size of each; empty of a model that llama.cpp does not load dry, as the real load will say why.

        Raises DoesNotFit where no memory is free at all.
        """
        with self._dry() as dry:
            if self._budget is None:
                return [SetupSize() for _ in setups]
            return [self._size(dry, each) for each in setups]

    def placements(self) -> tuple[Placed, ...]:
        """Return the ways to keep just enough of the model out of GPU memory for the context to fit, the best first.

        Experts of the first layers, else whole layers as llama.cpp's own `--fit` does, then the feed-forward tensors of
        the first layers. None where everything fits, where no GPU is used, and where nothing is enough.
        """
        with self._dry() as dry:
            if self._budget is None or not self._budget.on_gpu or not self._size(dry, self._setup).obstacle:
                return ()
            n_layer, setup = self._file.n_layer, self._setup
            ways: list[list[Placed]] = []
            if self._file.n_expert:
                ways.append([{"n_cpu_moe": n} for n in range(setup.n_cpu_moe + 1, n_layer + 1)])
            most = n_layer + 1 if setup.n_gpu_layers < 0 else min(n_layer + 1, setup.n_gpu_layers)
            ways.append([{"n_gpu_layers": n} for n in range(most - 1, -1, -1)])
            if not self._file.n_expert:
                given = setup.override_tensor
                kept = [(*given, _FFN.format("|".join(map(str, range(n))))) for n in range(1, n_layer + 1)]
                ways.append([{"override_tensor": each} for each in kept])
            found = (self._least(dry, each) for each in ways)
            return tuple(each for each in found if each is not None)

    def _least(self, dry: DryAllocator, ways: Sequence[Placed]) -> Placed | None:
        """The first of ever smaller loads that fits; None where none does."""

        def fits(way: Placed) -> bool:
            return not self._size(dry, replace(self._setup, **way)).obstacle

        index = bisect_left(ways, True, key=fits)
        return ways[index] if index < len(ways) else None

    def _size(self, dry: DryAllocator, setup: LlamaConfig) -> SetupSize:
        budget = self._budget
        assert budget is not None and setup.n_ctx is not None
        placement = Placement(self._file, setup, on_gpu=budget.on_gpu, devices=budget.planned.devices)
        try:
            found = dry.context(setup.n_ctx, setup)
        except EngineEnded as end:
            return SetupSize(f"llama.cpp refuses it: {end.ending.reason}")
        if placement.weight_bytes is None:
            return SetupSize(flash_attn=found.flash_attn)
        if placement.split is not None:
            lacking = next((each for each in placement.split.planned(found) if each.left_bytes < 0), None)
            if lacking is None:
                return SetupSize(flash_attn=found.flash_attn)
            text = f"{lacking.device} lacks {format_bytes(-lacking.left_bytes)}"
            return SetupSize(text, found.flash_attn)
        needed = placement.weight_bytes + placement.context_bytes(found) + placement.unreserved_bytes(found)
        usable = budget.held_bytes if budget.on_gpu else budget.planned.usable_bytes
        if needed <= usable:
            return SetupSize(flash_attn=found.flash_attn)
        text = f"needs {format_bytes(needed)} of {budget.place}, and {format_bytes(usable)} are free for it"
        return SetupSize(text, found.flash_attn)

    def _dry(self) -> DryAllocator:
        """An allocator with the header loaded, and the budget known where llama.cpp loads it."""
        gpus = list_gpus()  # as they are before the dry worker holds some of their memory itself
        devices = self._budget.planned.devices if self._budget else device_memories(self._setup)
        dry = DryAllocator(self._launch(), self._setup, devices)
        try:
            dry.load(self._file, self._file.paths[0])
            if self._budget is None:
                self._budget = search_budget(dry, dry.context(KV_CELLS), gpus, self._setup, None, devices)
        except EngineEnded:
            pass  # the real load will say why
        except BaseException:
            dry.__exit__()
            raise
        return dry


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
    """That hold layers; 0 for main memory alone."""


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
    """Return combinations of setups that were better alone, and of the best with those of which that is open.

    First all that go together, then these, and what does not go with them, with each that is open, then the other
    pairs; none that was tried. The best of `good` and of `open_` come first; each has at most one value of a setting.
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
