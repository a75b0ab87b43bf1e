"""What a search may take of a machine's memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ggbench.errors import DoesNotFit
from ggbench.machine.memory import Ram
from ggbench.records.machine import Gpu
from ggbench.sizing.budget import gpu_budget, main_memory_budget
from ggbench.units import GIB

CARD = Gpu(0, "card", None, None, 24 * GIB, 22 * GIB, None, None, None)
SMALL_CARD = Gpu(1, "small card", None, None, 12 * GIB, 10 * GIB, None, None, None)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 GiB of main memory, 10 of them available."""
    monkeypatch.setattr("ggbench.sizing.budget.describe_ram", lambda: Ram(16 * GIB, 10 * GIB))


def test_main_memory_is_always_limited() -> None:
    """Plain malloc overcommits, so without a limit the worker is held to what is available, less a reserve."""
    budget = main_memory_budget(limit_bytes=None, reserve_bytes=None)
    assert budget.budget_bytes == budget.worker_limit_bytes == 10 * GIB - GIB
    assert budget.free_bytes == 10 * GIB


def test_a_limit_is_the_budget() -> None:
    """Nothing is kept out of it unless asked for."""
    assert main_memory_budget(limit_bytes=3 * GIB, reserve_bytes=None).budget_bytes == 3 * GIB
    assert main_memory_budget(limit_bytes=3 * GIB, reserve_bytes=GIB).budget_bytes == 2 * GIB


def test_a_limit_above_what_is_free_cannot_be_kept() -> None:
    """What is free counts, and it is said."""
    budget = main_memory_budget(limit_bytes=64 * GIB, reserve_bytes=None)
    assert budget.budget_bytes == 10 * GIB
    assert "10.0 GiB" in budget.warning
    assert "22.0 GiB" in gpu_budget([CARD], (), limit_bytes=64 * GIB, reserve_bytes=None).warning


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
    """No reserve is taken that was not asked for; the worker gets both, and holds a ballast."""
    budget = gpu_budget([CARD], (), limit_bytes=limit_bytes, reserve_bytes=reserve_bytes)
    assert budget.budget_bytes == budget_gib * GIB
    assert (budget.worker_limit_bytes, budget.worker_reserve_bytes) == (limit_bytes, reserve_bytes or 0)
    assert budget.gpus == (CARD,)


def test_a_limit_holds_for_each_of_several_gpus() -> None:
    """Two cards held to 12 GiB each have 22 together where one of them has only 10 free."""
    budget = gpu_budget([CARD, SMALL_CARD], (), limit_bytes=12 * GIB, reserve_bytes=None)
    assert (budget.budget_bytes, budget.free_bytes) == (22 * GIB, 32 * GIB)
    assert "10.0 GiB" in budget.warning


def test_a_gpu_that_nvml_does_not_know_has_what_llama_cpp_finds_free() -> None:
    """Another maker's, or one that shares the system's memory."""
    silent = replace(CARD, total_bytes=None, free_bytes=None)
    for gpus in ((), (silent,)):
        budget = gpu_budget(gpus, [9 * GIB], limit_bytes=None, reserve_bytes=GIB)
        assert (budget.free_bytes, budget.budget_bytes, budget.gpus) == (9 * GIB, 8 * GIB, ())


def test_a_reserve_above_what_is_free_leaves_nothing() -> None:
    """Said so, before anything is loaded."""
    with pytest.raises(DoesNotFit, match=r"of 10\.0 GiB of main memory a reserve of 900\.0 GiB leaves nothing"):
        main_memory_budget(limit_bytes=None, reserve_bytes=900 * GIB)
    with pytest.raises(DoesNotFit, match=r"of 8\.00 GiB of GPU memory"):
        gpu_budget([CARD], (), limit_bytes=8 * GIB, reserve_bytes=9 * GIB)


def test_a_limit_holds_for_each_gpu_that_nvml_does_not_know() -> None:
    """As for those that it does."""
    budget = gpu_budget((), [22 * GIB, 22 * GIB], limit_bytes=12 * GIB, reserve_bytes=GIB)
    assert (budget.free_bytes, budget.budget_bytes) == (44 * GIB, 22 * GIB)


def test_no_free_memory_is_no_fault_of_a_reserve() -> None:
    """A card that others fill, or one whose free memory is unknown."""
    with pytest.raises(DoesNotFit, match="nothing of GPU memory is free"):
        gpu_budget((), [0], limit_bytes=None, reserve_bytes=None)
