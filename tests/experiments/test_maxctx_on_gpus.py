"""The search for the largest context in the memory of GPUs, which a fake worker and a fake NVML tell of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ggbench.catalog.selector import Target
from ggbench.errors import DoesNotFit
from ggbench.experiments.maxctx import MaxctxSettings
from ggbench.gguf_file.header import read_model_file
from ggbench.records.machine import Gpu, GpuProcess
from ggbench.records.setup import LlamaSetup
from ggbench.units import MIB
from tests.fakes.small_machine import CARD, COMPUTE, LIMIT, UNSEEN, SmallMachine, certified, search, settings


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes NVML list a card beside one that is not in use: as it was before the search, and 10 MiB free after it."""

    def install(after: tuple[Gpu, ...] = (replace(CARD, free_bytes=10 * MIB),)) -> None:
        hidden = replace(CARD, index=1, uuid="GPU-2", pci_bus_id="00000000:41:00.0", free_bytes=0)
        monkeypatch.setattr("ggbench.experiments.forecast.list_gpus", lambda: (CARD, hidden))
        monkeypatch.setattr("ggbench.experiments.maxctx.list_gpus", lambda: (hidden, *after))
        monkeypatch.setattr("ggbench.experiments.maxctx.list_gpu_processes", lambda _: ())

    return install


def test_what_a_gpu_gave_is_told_without_the_ballast_of_a_limit(
    target: Target, kv_bytes: int, gpus: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a limit the peak is what of the limit is gone, not of the card; who held memory before is told."""
    gpus()
    desktop = GpuProcess(911, "/usr/bin/desktop", 300 * MIB)
    monkeypatch.setattr("ggbench.experiments.maxctx.list_gpu_processes", lambda _: (desktop,))
    edge = (LIMIT - COMPUTE - UNSEEN) // kv_bytes // 256 * 256

    found = certified(SmallMachine(kv_bytes, edge, device="CUDA0").rig(), target, settings())

    assert (found.max_n_ctx, found.peak_bytes, found.free_bytes) == (edge, LIMIT - 10 * MIB, 23 << 30)
    assert found.other_bytes == LIMIT - 10 * MIB - COMPUTE - edge * kv_bytes
    assert found.gpu_processes == (desktop,)


def test_a_gpu_that_nvml_no_longer_tells_of_leaves_the_peak_unknown(
    target: Target, kv_bytes: int, gpus: Callable[..., None]
) -> None:
    """The answer stands without it."""
    gpus(after=())
    found = certified(SmallMachine(kv_bytes, 4096, device="CUDA0").rig(), target, settings())
    assert (found.max_n_ctx, found.peak_bytes, found.other_bytes) == (4096, None, None)


def test_layers_left_in_main_memory_do_not_count_against_the_gpu(
    target: Target, kv_bytes: int, gpus: Callable[..., None], tiny_twin: Path
) -> None:
    """Weights larger than the GPU's memory are no reason to give up where a part of them is offloaded."""
    gpus()
    file = read_model_file(tiny_twin)
    assert file.weight_bytes is not None
    limit_bytes = COMPUTE + file.weight_bytes // 2
    machine = SmallMachine(kv_bytes, 4096, device="CUDA0")
    asked = MaxctxSettings(LlamaSetup(memory_limit_bytes=limit_bytes, n_gpu_layers=1))

    found = certified(machine.rig(), target, asked)

    assert file.weight_bytes > limit_bytes - COMPUTE
    assert found.max_n_ctx == 4096
    assert {load.n_gpu_layers for load in machine.loads} == {1}


def test_weights_above_a_gpus_memory(target: Target, kv_bytes: int, gpus: Callable[..., None]) -> None:
    """The hint tells the way that only a GPU leaves open."""
    gpus()
    finished = search(SmallMachine(kv_bytes, 4096, device="CUDA0").rig(), target, settings(limit_bytes=MIB))
    assert isinstance(finished.error, DoesNotFit)
    assert "GPU memory" in finished.error.message
    assert "-ngl" in finished.error.hint


def test_without_a_layer_on_the_gpu_main_memory_is_searched(
    target: Target, kv_bytes: int, gpus: Callable[..., None]
) -> None:
    """llama.cpp computes large batches on the GPU all the same, but that is not where the context lies."""
    gpus()
    asked = MaxctxSettings(LlamaSetup(memory_limit_bytes=LIMIT, n_gpu_layers=0))
    found = certified(SmallMachine(kv_bytes, 4096, device="CUDA0").rig(), target, asked)
    assert found.free_bytes != CARD.free_bytes
    assert found.budget_bytes == LIMIT
