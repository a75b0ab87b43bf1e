"""The least of a model that stays in main memory, against trying every number."""

from pathlib import Path
from typing import cast

import pytest
from msgspec.structs import replace

from ggbench.engines.llama.config import LlamaConfig
from ggbench.fields import joined
from ggbench.gguf_file.layout import build_model
from ggbench.sizing.dry_allocator import DryAllocator, DryContext
from ggbench.sizing.fit import Fitter
from ggbench.sizing.placement import Placement
from ggbench.sizing.plan_record import HOST_DEVICE, Budget, DeviceMemory
from ggbench.sizing.what_helps import on_fastest, smallest_split, what_helps
from ggbench.stats.decode_timing import Bandwidth
from ggbench.units import GIB, MIB
from tests.conftest import TINY

FILE = build_model(
    replace(
        TINY, architecture="qwen2moe", n_layer=24, n_expert=16, n_expert_used=2, n_ff_expert=512, n_ff_shared_expert=512
    ),
    "experts",
)
WHOLE = DryContext(4096, 48 * MIB, 20 * MIB, 4 * MIB, MIB, True)


class _Allocator:
    """Sizes contexts whose compute buffer changes with the first part in main memory, as llama.cpp's does."""

    def __init__(self, compute_bytes: int) -> None:
        self._split = replace(WHOLE, device_compute_bytes=compute_bytes)

    def load(self, *_: object) -> None: ...

    def resume(self, *_: object) -> None: ...

    def context(self, n_ctx: int, setup: LlamaConfig) -> DryContext:
        return self._split if setup.n_cpu_moe or setup.n_gpu_layers >= 0 else WHOLE


@pytest.mark.parametrize("compute_bytes", [8 * MIB, 90 * MIB])
@pytest.mark.parametrize("room", [180 * MIB, 240 * MIB, 320 * MIB])
@pytest.mark.parametrize("main_memory", [1024 * MIB, 64 * MIB])
def test_the_smallest_number_of_layers_is_found(compute_bytes: int, room: int, main_memory: int) -> None:
    """Also if main memory is too small for them, which the plan then says."""
    gpu, host = DeviceMemory("CUDA0", room), DeviceMemory(HOST_DEVICE, main_memory)
    budget = Budget((gpu,), host)
    asked, allocator = LlamaConfig(n_ctx=4096), _Allocator(compute_bytes)

    def fits(number: int) -> bool:
        setup = replace(asked, n_cpu_moe=number)
        placement = Placement(FILE, setup, budget.devices, host)
        return (placement.planned(allocator.context(4096, setup))[0].left_bytes or 0) >= 0

    assert not fits(0)
    fitter = Fitter(FILE, Path(), budget, cast("DryAllocator", allocator))
    found = smallest_split(fitter, fitter.fit(asked))
    assert found is not None and found.setup == replace(
        asked, n_cpu_moe=next(number for number in range(1, 25) if fits(number))
    )


@pytest.mark.parametrize("room", [80 * MIB, 120 * MIB])
def test_gpus_that_split_each_layer_keep_the_experts_of_as_many(room: int) -> None:
    """They have no layers of their own, so no shares are given."""
    gpus = tuple(DeviceMemory(f"CUDA{number}", room, backend="CUDA") for number in range(2))
    budget = Budget(gpus, DeviceMemory(HOST_DEVICE, GIB))
    asked, allocator = LlamaConfig(n_ctx=4096, split_mode="tensor"), _Allocator(8 * MIB)

    def fits(number: int) -> bool:
        placement = Placement.of(FILE, replace(asked, n_cpu_moe=number), budget)
        return placement.left_bytes(allocator.context(4096, replace(asked, n_cpu_moe=number))) >= 0

    assert not fits(0)
    fitter = Fitter(FILE, Path(), budget, cast("DryAllocator", allocator))
    found = smallest_split(fitter, fitter.fit(asked))
    assert found is not None and found.setup == replace(
        asked, n_cpu_moe=next(number for number in range(1, 25) if fits(number))
    )


@pytest.mark.parametrize(("room", "tried"), [(GIB, ["CUDA1", "CUDA0,CUDA1"]), (240 * MIB, ["CUDA0,CUDA1"])])
def test_the_fastest_of_unlike_gpus_are_tried_where_weights_and_cache_may_fit(room: int, tried: list[str]) -> None:
    """Not what a faster one could take as well, nor where the user has chosen."""
    rates = enumerate((500e9, 900e9, 300e9))
    gpus = tuple(DeviceMemory(f"CUDA{n}", room, bandwidth=Bandwidth(rate, "made up")) for n, rate in rates)
    budget = Budget(gpus)
    fitter = Fitter(FILE, Path(), budget, cast("DryAllocator", _Allocator(8 * MIB)))
    asked = LlamaConfig(n_ctx=4096)
    assert [joined(each.devices) for each in on_fastest(fitter.fit(asked))] == tried
    assert not list(on_fastest(fitter.fit(replace(asked, tensor_split=(1.0, 1.0, 1.0)))))


def test_layers_that_main_memory_has_no_room_for_go_back_to_the_gpu() -> None:
    """With -ngl 2 the model does not fit, with all layers offloaded it does."""
    gpu, host = DeviceMemory("CUDA0", GIB), DeviceMemory(HOST_DEVICE, 64 * MIB)
    budget = Budget((gpu,), host)
    fitter = Fitter(FILE, Path(), budget, cast("DryAllocator", _Allocator(8 * MIB)))
    missed = fitter.fit(LlamaConfig(n_ctx=4096, n_gpu_layers=2))
    assert not missed.is_enough
    [change] = (each for each in what_helps(fitter, missed, 0) if each.fits)
    assert (change.kind, change.setup) == ("n_gpu_layers", LlamaConfig(n_ctx=4096, n_gpu_layers=FILE.n_layer + 1))
