"""What a search may take of a machine's memory."""

from __future__ import annotations

import pytest

from ggbench.experiments.forecast import search_budget
from ggbench.machine.memory import Ram
from ggbench.machine_records import Gpu
from ggbench.units import GIB, MIB


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 GiB of main memory, 10 of them available, and a card with 22 GiB free."""
    card = Gpu(0, "card", None, None, 24 * GIB, 22 * GIB, None, None, None)
    monkeypatch.setattr("ggbench.experiments.forecast.describe_ram", lambda: Ram(16 * GIB, 10 * GIB))
    monkeypatch.setattr("ggbench.experiments.forecast.visible_gpus", lambda: (card,))


def test_main_memory_is_always_limited() -> None:
    """Plain malloc overcommits, so without a limit the worker is held to what is available, less a reserve."""
    budget = search_budget(on_gpu=False, limit_bytes=None, reserve_bytes=None)
    assert budget.budget_bytes == budget.worker_limit_bytes == 10 * GIB - 256 * MIB
    assert budget.free_bytes == 10 * GIB


def test_a_limit_is_the_budget() -> None:
    """Nothing is kept out of it unless asked for."""
    assert search_budget(on_gpu=False, limit_bytes=3 * GIB, reserve_bytes=None).budget_bytes == 3 * GIB
    assert search_budget(on_gpu=False, limit_bytes=3 * GIB, reserve_bytes=GIB).budget_bytes == 2 * GIB


def test_a_limit_above_what_is_free_cannot_be_kept() -> None:
    """What is free counts, and it is said."""
    budget = search_budget(on_gpu=False, limit_bytes=64 * GIB, reserve_bytes=None)
    assert budget.budget_bytes == 10 * GIB
    assert "10.0 GiB" in budget.warning


def test_a_gpu_limits_itself() -> None:
    """The free memory is the budget and no ballast is needed, unless a limit or a reserve is asked for."""
    assert search_budget(on_gpu=True, limit_bytes=None, reserve_bytes=None).worker_limit_bytes is None
    assert search_budget(on_gpu=True, limit_bytes=None, reserve_bytes=None).budget_bytes == 22 * GIB
    assert search_budget(on_gpu=True, limit_bytes=12 * GIB, reserve_bytes=None).worker_limit_bytes == 12 * GIB
    assert search_budget(on_gpu=True, limit_bytes=None, reserve_bytes=2 * GIB).worker_limit_bytes == 20 * GIB
