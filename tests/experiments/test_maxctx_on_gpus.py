"""The search for the largest context in the memory of GPUs, which a fake worker and a fake NVML report."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import UsageError
from ggbench.gguf_file.header import read_model_file
from ggbench.machine.records import GpuProcess
from ggbench.models.targets import Target
from ggbench.sizing.plan_record import DeviceMemory
from ggbench.units import MIB
from tests.fakes.small_machine import CARD, COMPUTE, LIMIT, UNSEEN, SmallMachine, found, search


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def install() -> None:
        monkeypatch.setattr("ggbench.experiments.maxctx.look_ahead.list_gpus", lambda: (CARD,))
        monkeypatch.setattr("ggbench.experiments.maxctx.look_ahead.list_gpu_processes", lambda _: ())
        device = DeviceMemory("CUDA0", CARD.free_bytes or 0, name=CARD.name)
        monkeypatch.setattr("ggbench.sizing.budget.devices_here", lambda _: (device,))

    return install


def test_a_limit_of_a_gpu_is_searched_and_its_other_programs_are_named(
    target: Target, kv_bytes: int, gpus: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus()
    desktop = GpuProcess(911, "/usr/bin/desktop", 300 * MIB)
    monkeypatch.setattr("ggbench.experiments.maxctx.look_ahead.list_gpu_processes", lambda _: (desktop,))
    edge = (LIMIT - COMPUTE - UNSEEN) // kv_bytes // 256 * 256
    context, _ = found(SmallMachine(kv_bytes, edge, device="CUDA0").rig(), target)
    assert (context.max_n_ctx, context.plan.memory_bytes) == (edge, LIMIT)
    assert context.plan.gpu_processes == (desktop,)


def test_layers_left_in_main_memory_do_not_count_against_the_gpu(
    target: Target, kv_bytes: int, gpus: Callable[..., None], tiny_twin: Path
) -> None:
    gpus()
    file = read_model_file(tiny_twin)
    assert file.weight_bytes is not None
    limit_bytes = COMPUTE + file.weight_bytes // 2
    machine = SmallMachine(kv_bytes, 4096, device="CUDA0")
    context, _ = found(machine.rig(), target, LlamaConfig(memory_limit_bytes=limit_bytes, n_gpu_layers=1))
    assert file.weight_bytes > limit_bytes - COMPUTE
    assert context.max_n_ctx == 4096
    assert {load.setup.n_gpu_layers for load in machine.loads} == {1}


def test_without_a_layer_on_the_gpu_main_memory_is_searched(
    target: Target, kv_bytes: int, gpus: Callable[..., None]
) -> None:
    gpus()
    setup = LlamaConfig(memory_limit_bytes=LIMIT, n_gpu_layers=0)
    context, _ = found(SmallMachine(kv_bytes, 4096, device="CUDA0").rig(), target, setup)
    assert (context.plan.memory_bytes, context.plan.memory_source) == (LIMIT, "given as --memory-limit")


def test_a_cache_in_main_memory_is_not_searched_on_a_gpu(
    target: Target, kv_bytes: int, gpus: Callable[..., None]
) -> None:
    """No GPU's memory would end such a search, and main memory has no limit there."""
    gpus()
    setup = LlamaConfig(memory_limit_bytes=LIMIT, kv_offload=False)
    finished = search(SmallMachine(kv_bytes, 4096, device="CUDA0").rig(), target, setup)
    assert isinstance(finished.error, UsageError)
    assert "--no-kv-offload" in finished.error.hint
    setup = replace(setup, n_gpu_layers=0)
    assert found(SmallMachine(kv_bytes, 4096).rig(), target, setup)[0].max_n_ctx == 4096
