"""What a model takes under each of several setups, by the allocator run dry, and which of them fit.

Linux grants more memory than there is, so a real context would not show that it does not fit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ggbench.engines.contract import Engine
from ggbench.engines.endings import EngineEnded
from ggbench.engines.llama.config import LlamaConfig
from ggbench.gguf_file.model_file import ModelFile
from ggbench.machine.gpus import list_gpus
from ggbench.sizing.budget import SearchBudget, search_budget
from ggbench.sizing.cluster import device_memories
from ggbench.sizing.dry_allocator import DryAllocator, DryContext
from ggbench.sizing.placement import Placement
from ggbench.units import KV_CELLS, format_bytes

Placed = Mapping[str, Any]
"""Fields of a setup that say where tensors lie, with their values."""


_FFN = r"blk\.({})\.ffn_(up|down|gate)\.weight=CPU"


class SetupSize(msgspec.Struct, frozen=True):
    """One setup before it is loaded."""

    obstacle: str = ""
    """Why it cannot be tried, in one line; empty where it fits as far as is known."""
    context: DryContext | None = None
    """What it would take; None where llama.cpp does not size it."""


class SetupSizes:
    """Sizes setups of one file within what was free at first; every question starts a dry worker, and ends it."""

    def __init__(self, launch: Callable[[], Engine], file: ModelFile, setup: LlamaConfig) -> None:
        """`setup` has its n_ctx and its threads."""
        self._launch, self._file, self._setup = launch, file, setup
        self._budget: SearchBudget | None = None

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
        # What a plan reserves of a GPU for its driver is not needed where the allocation is real.
        usable = budget.held_bytes if budget.on_gpu else budget.planned.usable_bytes
        if placement.weight_bytes is None or (needed := placement.needed_bytes(found, usable)) <= usable:
            return SetupSize(context=found)
        if placement.split is not None:
            lacking = min(placement.split.planned(found), key=lambda each: each.left_bytes)
            return SetupSize(f"{lacking.device} lacks {format_bytes(-lacking.left_bytes)}", found)
        text = f"needs {format_bytes(needed)} of {budget.place}, and {format_bytes(usable)} are free for it"
        return SetupSize(text, found)

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
