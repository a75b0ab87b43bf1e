"""The memory to plan for, with its reserve and where each comes from."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import DoesNotFit, UsageError
from ggbench.machine.description import describe_machine
from ggbench.machine.host import Ram
from ggbench.machine.records import Gpu
from ggbench.sizing.budget import BESIDE_BUFFERS_BYTES, described_budget, machine_budget, with_main_memory
from ggbench.sizing.projectors import Projector
from ggbench.sizing.search_budget import beside_projector, gpu_budget, main_memory_budget
from ggbench.stats.decode_timing import Bandwidth
from ggbench.units import GIB, MIB

RATE = Bandwidth(1e9, "given")
H200 = Gpu(0, "NVIDIA H200", None, None, 140 * GIB, 100 * GIB, 6144, 3201, "580.1")


@pytest.mark.parametrize(
    ("gpu", "shown_mib", "kept_mib"),
    [
        ("4090", 24_080, [561]), ("24GiB", 24_576, [561]), ("rx-7900-xtx", 24_560, [561]),
        ("t4", 14_912, [305]), ("h100-sxm", 81_079, [305]), ("rtx-4070-laptop", 7_805, [305]),
        ("rtx-3090x2", 48_242, [561, 305]), ("rtx-3060,t4", 26_818, [561, 305]), ("a40x2", 90_996, [305, 305]),
        ("m4-pro-24gb", 18_186, [305]), ("strix-halo", 65_536, [305]), ("dgx-spark", 124_610, [4096]),
        ("orin-nano", 7_607, [1901]),
    ],
)  # fmt: skip
def test_a_known_card_by_its_name(gpu: str, shown_mib: int, kept_mib: list[int]) -> None:
    """What its driver shows, less llama.cpp's process and, on the first card that draws one, a desktop; a GPU that may
    take all of main memory leaves some to the system.
    """
    budget = described_budget(describe_machine([gpu], None), reserve_bytes=None)
    assert (round(budget.memory_bytes / MIB), budget.on_gpu) == (shown_mib, True)
    assert [device.reserve_bytes // MIB for device in budget.devices] == kept_mib
    assert budget.usable_bytes == budget.memory_bytes - sum(device.reserve_bytes for device in budget.devices)


def test_a_pair_holds_what_it_holds_in_a_report() -> None:
    """phi-4 in q8_0 with a q8_0 cache of 98,304 tokens takes 15,368 and 11,086 MiB of these, and loads."""
    budget = described_budget(describe_machine(["rtx-5060-ti-16gb,rtx-3060"], None), reserve_bytes=None)
    assert [device.usable_bytes // MIB for device in budget.devices] == [15_492, 11_601]


def test_a_card_says_its_sources() -> None:
    budget = described_budget(describe_machine(["4090"], None), reserve_bytes=None)
    assert ("log" in budget.memory_source, "a desktop" in budget.reserve_source) == (True, True)
    assert budget.bandwidth is not None
    assert budget.bandwidth.bytes_per_s == 1008e9


def test_what_is_given_goes_before_what_is_known() -> None:
    budget = described_budget(describe_machine(["4090"], None, vram="16GiB", rate="1GB/s"), reserve_bytes=0)
    assert (budget.usable_bytes, budget.bandwidth) == (16 * GIB, RATE)
    assert (budget.memory_source, budget.reserve_source) == ("given", "given")
    unnamed = described_budget(describe_machine([], None, vram="3GiB"), reserve_bytes=2 * GIB)
    assert (unnamed.usable_bytes, unnamed.bandwidth) == (GIB, None)


def test_this_machines_gpu_by_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by its whole memory: what others hold is not there. A GPU that is not here is an error."""
    monkeypatch.setattr("ggbench.machine.gpus.list_gpus", lambda: (H200,))
    budget = machine_budget(LlamaConfig())
    assert (budget.device, budget.memory_bytes) == ("NVIDIA H200", 100 * GIB)
    assert budget.usable_bytes == 99 * GIB
    assert budget.bandwidth is not None
    assert budget.bandwidth.bytes_per_s == pytest.approx(4.917e12, rel=1e-3)
    with pytest.raises(UsageError, match="no GPU 1"):
        machine_budget(LlamaConfig(main_gpu=1))


@pytest.mark.parametrize(("gpus", "n_gpu_layers"), [((), -1), ((H200,), 0)])
def test_main_memory_where_no_layer_goes_to_a_gpu(
    monkeypatch: pytest.MonkeyPatch, gpus: tuple[Gpu, ...], n_gpu_layers: int
) -> None:
    monkeypatch.setattr("ggbench.machine.gpus.list_gpus", lambda: gpus)
    monkeypatch.setattr("ggbench.sizing.budget.describe_ram", lambda: Ram(64 * GIB, 20 * GIB))
    budget = machine_budget(LlamaConfig(n_gpu_layers=n_gpu_layers), reserve_bytes=4 * GIB, bandwidth=RATE)
    assert (budget.on_gpu, budget.memory_bytes) == (False, 20 * GIB)
    assert budget.usable_bytes == 16 * GIB - BESIDE_BUFFERS_BYTES
    assert "64.0 MiB for llama.cpp's process" in budget.reserve_source


def test_a_gpu_that_may_take_all_of_main_memory_leaves_it_uncounted() -> None:
    whole, half = (
        described_budget(describe_machine([name], None), reserve_bytes=None) for name in ("gb10", "strix-halo")
    )
    assert (whole.host, whole.memory_bytes) == (None, 124_610 * MIB)
    assert half.host is not None
    assert half.host.free_bytes == half.memory_bytes == 64 * GIB


def test_main_memory_of_which_nothing_is_said_is_assumed() -> None:
    """Where a GPU shares it, its bandwidth is the GPU's."""
    card, mac = (
        described_budget(describe_machine([name], None), reserve_bytes=None) for name in ("rtx-3060", "m4-pro-24gb")
    )
    host = with_main_memory(card).host
    assert host is not None and host.bandwidth is not None
    assert (host.free_bytes, host.bandwidth.source[:21]) == (32 * GIB, "size and rate assumed")
    shared = with_main_memory(mac)
    assert shared.host is not None and shared.host.bandwidth is not None and shared.bandwidth is not None
    assert shared.host.bandwidth.bytes_per_s == shared.bandwidth.bytes_per_s


def test_a_reserve_that_leaves_nothing() -> None:
    with pytest.raises(UsageError, match=r"a reserve of 561.0 MiB uses up 512.0 MiB") as error:
        described_budget(describe_machine([], None, vram="512MiB"), reserve_bytes=None)
    assert "--reserve" in error.value.hint


CARD = Gpu(0, "card", None, None, 24 * GIB, 22 * GIB, None, None, None)
SMALL_CARD = Gpu(1, "small card", None, None, 12 * GIB, 10 * GIB, None, None, None)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("budget", "search_budget"):
        monkeypatch.setattr(f"ggbench.sizing.{module}.describe_ram", lambda: Ram(16 * GIB, 10 * GIB))


def test_a_limit_is_what_the_worker_is_held_to() -> None:
    for reserve_bytes in (None, GIB):
        budget = main_memory_budget(limit_bytes=3 * GIB, reserve_bytes=reserve_bytes)
        assert budget.held_bytes == budget.worker_limit_bytes == 3 * GIB - (reserve_bytes or 0)
        assert budget.planned.usable_bytes == budget.held_bytes - BESIDE_BUFFERS_BYTES


def test_a_projector_takes_of_what_is_held() -> None:
    before = main_memory_budget(limit_bytes=3 * GIB, reserve_bytes=None)
    after = beside_projector(before, Projector(Path(), GIB))
    assert after.held_bytes == after.worker_limit_bytes == 2 * GIB
    assert after.planned.usable_bytes == before.planned.usable_bytes - GIB
    two = gpu_budget([CARD, CARD], (), limit_bytes=None, reserve_bytes=GIB)
    after = beside_projector(two, Projector(Path(), GIB + 1))
    assert after.worker_reserve_bytes == GIB + GIB // 2 + 1
    assert (after.worker_limit_bytes, after.held_bytes) == (None, two.held_bytes - GIB - 1)
    with pytest.raises(DoesNotFit, match=r"needs 3\.00 GiB, but only 3\.00 GiB of main memory are available"):
        beside_projector(before, Projector(Path(), 3 * GIB))


@pytest.mark.parametrize("n_gpu_layers", [-1, 0])
@pytest.mark.parametrize("reserve_bytes", [None, 0, GIB])
@pytest.mark.parametrize("limit_bytes", [None, 3 * GIB, 9 * GIB + 1, 21 * GIB + 1, 64 * GIB])
def test_a_plan_and_a_search_count_with_the_same_memory(
    monkeypatch: pytest.MonkeyPatch, limit_bytes: int | None, reserve_bytes: int | None, n_gpu_layers: int
) -> None:
    monkeypatch.setattr("ggbench.machine.gpus.list_gpus", lambda: (CARD,))
    planned = machine_budget(
        LlamaConfig(n_gpu_layers=n_gpu_layers, memory_limit_bytes=limit_bytes),
        reserve_bytes=reserve_bytes, bandwidth=Bandwidth(1e9, "given"),
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
        pytest.param(None, None, 22, id="all that is free"), pytest.param(12 * GIB, None, 12, id="a limit"),
        pytest.param(None, 2 * GIB, 20, id="a reserve"), pytest.param(12 * GIB, 2 * GIB, 10, id="both"),
    ],
)  # fmt: skip
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


def test_main_memory_is_limited_to_what_is_free() -> None:
    """Plain malloc overcommits. A limit above it cannot be kept, and it is said."""
    budget = main_memory_budget(limit_bytes=None, reserve_bytes=None)
    assert budget.planned.usable_bytes == 9 * GIB
    assert budget.held_bytes == budget.worker_limit_bytes == 9 * GIB + BESIDE_BUFFERS_BYTES
    assert (budget.free_bytes, budget.warning) == (10 * GIB, "")
    asked = main_memory_budget(limit_bytes=64 * GIB, reserve_bytes=None)
    assert asked.planned.usable_bytes == 9 * GIB
    assert "10.0 GiB" in asked.warning
    assert "22.0 GiB" in gpu_budget([CARD], (), limit_bytes=64 * GIB, reserve_bytes=None).warning


def test_nothing_is_loaded_where_a_reserve_leaves_nothing_or_no_memory_is_free() -> None:
    with pytest.raises(DoesNotFit, match=r"a reserve of 900\.0 GiB uses up 10\.0 GiB of main memory"):
        main_memory_budget(limit_bytes=None, reserve_bytes=900 * GIB)
    with pytest.raises(DoesNotFit, match=r"of GPU memory"):
        gpu_budget([CARD], (), limit_bytes=8 * GIB, reserve_bytes=23 * GIB)
    with pytest.raises(DoesNotFit, match="no GPU memory is free"):
        gpu_budget((), [0], limit_bytes=None, reserve_bytes=None)


def test_a_card_that_nobody_knows_is_refused_with_the_nearest_names() -> None:
    with pytest.raises(UsageError, match="rtx-4099") as error:
        describe_machine(["rtx-4099"], None)
    assert "rtx-4090" in error.value.hint
