"""What a search may take of a machine's memory."""

import pytest
from msgspec.structs import replace

from ggbench.errors import DoesNotFit
from ggbench.machine.host import Ram
from ggbench.machine.records import Gpu
from ggbench.sizing.budget import BESIDE_BUFFERS_BYTES, beside_projector, gpu_budget, machine_budget, main_memory_budget
from ggbench.stats.decode_timing import Bandwidth
from ggbench.units import GIB, MIB

CARD = Gpu(0, "card", None, None, 24 * GIB, 22 * GIB, None, None, None)
SMALL_CARD = Gpu(1, "small card", None, None, 12 * GIB, 10 * GIB, None, None, None)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ggbench.sizing.budget.describe_ram", lambda: Ram(16 * GIB, 10 * GIB))


def test_a_limit_is_what_the_worker_is_held_to() -> None:
    for reserve_bytes in (None, GIB):
        budget = main_memory_budget(limit_bytes=3 * GIB, reserve_bytes=reserve_bytes)
        assert budget.held_bytes == budget.worker_limit_bytes == 3 * GIB - (reserve_bytes or 0)
        assert budget.planned.usable_bytes == budget.held_bytes - BESIDE_BUFFERS_BYTES


def test_a_projector_takes_of_what_is_held() -> None:
    before = main_memory_budget(limit_bytes=3 * GIB, reserve_bytes=None)
    after = beside_projector(before, GIB)
    assert after.held_bytes == after.worker_limit_bytes == 2 * GIB
    assert after.planned.usable_bytes == before.planned.usable_bytes - GIB
    two = gpu_budget([CARD, CARD], (), limit_bytes=None, reserve_bytes=GIB)
    after = beside_projector(two, GIB + 1)
    assert after.worker_reserve_bytes == GIB + GIB // 2 + 1
    assert (after.worker_limit_bytes, after.held_bytes) == (None, two.held_bytes - GIB - 1)
    with pytest.raises(DoesNotFit, match=r"a projector of 3\.00 GiB leaves nothing of 3\.00 GiB of main memory"):
        beside_projector(before, 3 * GIB)


@pytest.mark.parametrize("n_gpu_layers", [-1, 0])
@pytest.mark.parametrize("reserve_bytes", [None, 0, GIB])
@pytest.mark.parametrize("limit_bytes", [None, 3 * GIB, 9 * GIB + 1, 21 * GIB + 1, 64 * GIB])
def test_a_plan_and_a_search_count_with_the_same_memory(
    monkeypatch: pytest.MonkeyPatch, limit_bytes: int | None, reserve_bytes: int | None, n_gpu_layers: int
) -> None:
    monkeypatch.setattr("ggbench.machine.gpus.list_gpus", lambda: (CARD,))
    planned = machine_budget(
        n_gpu_layers=n_gpu_layers, main_gpu=None, threads=1, reserve_bytes=reserve_bytes,
        bandwidth=Bandwidth(1e9, "given"), limit_bytes=limit_bytes,
    )  # fmt: skip
    if n_gpu_layers:
        search = gpu_budget([CARD], (), limit_bytes=limit_bytes, reserve_bytes=reserve_bytes)
    else:
        search = main_memory_budget(limit_bytes=limit_bytes, reserve_bytes=reserve_bytes)
    assert search.planned.usable_bytes == planned.usable_bytes <= search.held_bytes
    assert (search.planned.memory_bytes, search.planned.reserve_bytes) == (planned.memory_bytes, planned.reserve_bytes)
    assert search.held_bytes <= (search.free_bytes if limit_bytes is None else limit_bytes)


@pytest.mark.parametrize(("total_gib", "kept_mib"), [(0.5, 128), (1, 256), (2, 512), (4, 1024), (64, 1024)])
def test_the_reserve_of_main_memory_is_a_share_of_a_small_one(
    monkeypatch: pytest.MonkeyPatch, total_gib: float, kept_mib: int
) -> None:
    """In a container of 1 GiB a reserve of 1 GiB would leave nothing; the rule is stated where it is printed."""
    ram = Ram(round(total_gib * GIB), round(total_gib * GIB * 0.9))
    monkeypatch.setattr("ggbench.sizing.budget.describe_ram", lambda: ram)
    planned = main_memory_budget(limit_bytes=None, reserve_bytes=None).planned
    assert planned.reserve_bytes == kept_mib * MIB
    assert planned.usable_bytes == ram.available_bytes - kept_mib * MIB
    assert "a quarter of main memory, at most 1 GiB" in planned.reserve_source


@pytest.mark.parametrize(
    ("limit_bytes", "reserve_bytes", "budget_gib"),
    [
        pytest.param(None, None, 22, id="all that is free"),
        pytest.param(12 * GIB, None, 12, id="a limit"),
        pytest.param(None, 2 * GIB, 20, id="a reserve"),
        pytest.param(12 * GIB, 2 * GIB, 10, id="both"),
    ],
)
def test_a_gpu_limits_itself(limit_bytes: int | None, reserve_bytes: int | None, budget_gib: int) -> None:
    budget = gpu_budget([CARD], (), limit_bytes=limit_bytes, reserve_bytes=reserve_bytes)
    assert budget.held_bytes == budget_gib * GIB
    assert (budget.worker_limit_bytes, budget.worker_reserve_bytes) == (limit_bytes, reserve_bytes or 0)
    assert budget.gpus == (CARD,)


def test_a_limit_holds_for_each_of_several_gpus() -> None:
    budget = gpu_budget([CARD, SMALL_CARD], (), limit_bytes=12 * GIB, reserve_bytes=None)
    assert (budget.held_bytes, budget.free_bytes) == (22 * GIB, 32 * GIB)
    assert "10.0 GiB" in budget.warning


def test_a_gpu_that_nvml_does_not_know_has_what_llama_cpp_finds_free() -> None:
    silent = replace(CARD, total_bytes=None, free_bytes=None)
    for gpus in ((), (silent,)):
        budget = gpu_budget(gpus, [9 * GIB], limit_bytes=None, reserve_bytes=GIB)
        assert (budget.free_bytes, budget.held_bytes, budget.gpus) == (9 * GIB, 8 * GIB, ())
