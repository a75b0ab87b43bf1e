"""The memory to plan for, with its reserve and where each comes from."""

import pytest

from ggbench.errors import UsageError
from ggbench.machine.host import Ram
from ggbench.machine.records import Gpu
from ggbench.sizing.budget import BESIDE_BUFFERS_BYTES, given_budget, machine_budget
from ggbench.stats.decode_timing import Bandwidth
from ggbench.units import GIB, MIB

RATE = Bandwidth(1e9, "given")
H200 = Gpu(0, "NVIDIA H200", None, None, 140 * GIB, 100 * GIB, 6144, 3201, "580.1")


def test_a_known_card_by_its_name() -> None:
    """Its datasheet's memory and bandwidth, in powers of ten, less the reserve, which names its source."""
    budget = given_budget(gpu="4090", vram_bytes=None, reserve_bytes=None, bandwidth=None)
    assert (budget.memory_bytes, budget.on_gpu) == (24 * GIB, True)
    assert budget.usable_bytes == 24 * GIB - 1280 * MIB
    assert "RTX 4090" in budget.reserve_source
    assert budget.bandwidth is not None
    assert budget.bandwidth.bytes_per_s == 1008e9


def test_what_is_given_goes_before_what_is_known() -> None:
    budget = given_budget(gpu="4090", vram_bytes=16 * GIB, reserve_bytes=0, bandwidth=RATE)
    assert (budget.usable_bytes, budget.bandwidth) == (16 * GIB, RATE)
    assert (budget.memory_source, budget.reserve_source) == ("given", "given")
    unnamed = given_budget(gpu=None, vram_bytes=3 * GIB, reserve_bytes=2 * GIB, bandwidth=None)
    assert (unnamed.usable_bytes, unnamed.bandwidth) == (GIB, None)


def test_this_machines_gpu_by_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by its whole memory: what others hold is not there. A GPU that is not here is an error."""
    monkeypatch.setattr("ggbench.machine.gpus.list_gpus", lambda: (H200,))
    budget = machine_budget(n_gpu_layers=-1, main_gpu=None, threads=1, reserve_bytes=None, bandwidth=None)
    assert (budget.device, budget.memory_bytes) == ("NVIDIA H200", 100 * GIB)
    assert budget.usable_bytes == 99 * GIB
    assert budget.bandwidth is not None
    assert budget.bandwidth.bytes_per_s == pytest.approx(4.917e12, rel=1e-3)
    with pytest.raises(UsageError, match="no GPU 1"):
        machine_budget(n_gpu_layers=-1, main_gpu=1, threads=1, reserve_bytes=None, bandwidth=None)


@pytest.mark.parametrize(("gpus", "n_gpu_layers"), [((), -1), ((H200,), 0)])
def test_main_memory_where_no_layer_goes_to_a_gpu(
    monkeypatch: pytest.MonkeyPatch, gpus: tuple[Gpu, ...], n_gpu_layers: int
) -> None:
    monkeypatch.setattr("ggbench.machine.gpus.list_gpus", lambda: gpus)
    monkeypatch.setattr("ggbench.sizing.budget.describe_ram", lambda: Ram(64 * GIB, 20 * GIB))
    budget = machine_budget(n_gpu_layers=n_gpu_layers, main_gpu=None, threads=1, reserve_bytes=4 * GIB, bandwidth=RATE)
    assert (budget.on_gpu, budget.memory_bytes) == (False, 20 * GIB)
    assert budget.usable_bytes == 16 * GIB - BESIDE_BUFFERS_BYTES
    assert "64.0 MiB for what llama.cpp's process takes" in budget.reserve_source


def test_a_reserve_that_leaves_nothing() -> None:
    with pytest.raises(UsageError, match=r"a reserve of 1.25 GiB leaves nothing of 1.00 GiB") as error:
        given_budget(gpu=None, vram_bytes=GIB, reserve_bytes=None, bandwidth=None)
    assert "--reserve" in error.value.hint
