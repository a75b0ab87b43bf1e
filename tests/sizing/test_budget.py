"""The memory to plan for, with its reserve and where each comes from."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.engines.http.config import LlamaServerConfig
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import DoesNotFit, UsageError
from ggbench.machine.description import describe_machine
from ggbench.machine.host import Ram
from ggbench.machine.records import Gpu
from ggbench.sizing.budget import (
    BESIDE_BUFFERS_BYTES,
    described_budget,
    devices_here,
    free_budget,
    machine_budget,
    with_main_memory,
)
from ggbench.sizing.plan_record import Budget, DeviceMemory
from ggbench.sizing.projectors import Projector
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
    for absent in (LlamaConfig(main_gpu=1), LlamaConfig(devices=("CUDA1",))):
        with pytest.raises(UsageError, match="no GPU"):
            machine_budget(absent)


@pytest.mark.parametrize(
    ("variable", "value", "names"),
    [
        ("CUDA_DEVICE_ORDER", "FASTEST_FIRST", ["NVIDIA H200", "NVIDIA H20"]),
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID", ["NVIDIA H20", "NVIDIA H200"]),
        ("CUDA_VISIBLE_DEVICES", "0,1", ["NVIDIA H20", "NVIDIA H200"]),
    ],
)
def test_unlike_gpus_are_counted_as_cuda_does(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, names: list[str]
) -> None:
    """The fastest first, unless the environment says how: `-mg` and `-ts` name cards by these numbers."""
    slower = replace(H200, index=1, name="NVIDIA H20", memory_clock_mhz=1000)
    monkeypatch.setattr("ggbench.machine.gpus.list_gpus", lambda: (slower, H200))
    monkeypatch.setenv(variable, value)
    assert [each.name for each in devices_here()] == names


@pytest.mark.parametrize(("gpus", "n_gpu_layers"), [((), -1), ((H200,), 0)])
def test_main_memory_where_no_layer_goes_to_a_gpu(
    monkeypatch: pytest.MonkeyPatch, gpus: tuple[Gpu, ...], n_gpu_layers: int
) -> None:
    monkeypatch.setattr("ggbench.machine.gpus.list_gpus", lambda: gpus)
    monkeypatch.setattr("ggbench.sizing.budget.describe_ram", lambda: Ram(64 * GIB, 20 * GIB))
    budget = machine_budget(LlamaConfig(n_gpu_layers=n_gpu_layers), reserve_bytes=4 * GIB, bandwidth=RATE)
    assert (budget.on_gpu, budget.memory_bytes) == (False, 20 * GIB)
    assert budget.usable_bytes == 16 * GIB - BESIDE_BUFFERS_BYTES


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


def card(free_gib: int, number: int = 0) -> DeviceMemory:
    return DeviceMemory(f"CUDA{number}", free_gib * GIB, name="card")


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ggbench.sizing.budget.describe_ram", lambda: Ram(16 * GIB, 10 * GIB))


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def install(*devices: DeviceMemory) -> None:
        monkeypatch.setattr("ggbench.sizing.budget.devices_here", lambda _servers: devices)

    return install


def free(limit_bytes: int | None = None, reserve_bytes: int | None = None, projector_bytes: int = 0) -> Budget:
    budget = free_budget(LlamaConfig(memory_limit_bytes=limit_bytes), reserve_bytes)
    return budget.beside_projector(Projector(Path(), projector_bytes)) if projector_bytes else budget


def test_a_limit_is_a_machine_with_as_much() -> None:
    """A search within a limit and check for a machine of its size come to one verdict."""
    for gib in (1, 3, 9):
        limited, described = free(gib * GIB), described_budget(describe_machine([], f"{gib}GiB"), reserve_bytes=None)
        assert limited.usable_bytes == described.usable_bytes < limited.held_bytes
        assert limited.reserve_source == described.reserve_source
    given = free(3 * GIB, GIB)
    assert (given.held_bytes, given.usable_bytes) == (2 * GIB, 2 * GIB - BESIDE_BUFFERS_BYTES)


def test_a_projector_takes_of_what_is_held(cards: Callable[..., None]) -> None:
    before, after = free(3 * GIB), free(3 * GIB, projector_bytes=GIB)
    assert after.held_bytes == before.held_bytes - GIB
    assert after.usable_bytes == before.usable_bytes - GIB
    assert not free(3 * GIB, projector_bytes=3 * GIB).held_bytes
    cards(card(22), card(22, 1))
    two, after = free(reserve_bytes=GIB), free(reserve_bytes=GIB, projector_bytes=GIB + 1)
    assert after.ballast_bytes == GIB + GIB // 2 + 1
    assert after.held_bytes == two.held_bytes - GIB - 1


@pytest.mark.parametrize("n_gpu_layers", [-1, 0])
@pytest.mark.parametrize("reserve_bytes", [None, 0, GIB])
@pytest.mark.parametrize("limit_bytes", [None, 3 * GIB, 9 * GIB + 1, 21 * GIB + 1, 64 * GIB])
def test_a_plan_and_a_search_count_with_the_same_memory(
    cards: Callable[..., None], limit_bytes: int | None, reserve_bytes: int | None, n_gpu_layers: int
) -> None:
    """A worker may take what a plan keeps for its process, within the limit."""
    cards(card(22))
    setup = LlamaConfig(n_gpu_layers=n_gpu_layers, memory_limit_bytes=limit_bytes)
    planned = machine_budget(setup, reserve_bytes=reserve_bytes, measures=False)
    assert free_budget(setup, reserve_bytes) == planned
    free_bytes = 22 * GIB if n_gpu_layers else 10 * GIB
    assert planned.memory_bytes == min(free_bytes, limit_bytes or free_bytes)
    assert planned.usable_bytes <= planned.held_bytes <= planned.memory_bytes
    if reserve_bytes is None:
        is_smaller = planned.memory_bytes < free_bytes
        kept_bytes = planned.memory_bytes // 4 if is_smaller and not n_gpu_layers else GIB
        assert planned.usable_bytes == planned.memory_bytes - kept_bytes
        beside_bytes = 0 if n_gpu_layers else kept_bytes - BESIDE_BUFFERS_BYTES
        assert planned.held_bytes == planned.memory_bytes - beside_bytes


@pytest.mark.parametrize(("total_gib", "kept_mib"), [(0.5, 128), (1, 256), (2, 512), (4, 1024), (64, 1024)])
def test_the_reserve_of_main_memory_is_a_share_of_a_small_one(
    monkeypatch: pytest.MonkeyPatch, total_gib: float, kept_mib: int
) -> None:
    """In a container of 1 GiB a reserve of 1 GiB would leave nothing; the rule is stated where it is printed."""
    ram = Ram(round(total_gib * GIB), round(total_gib * GIB * 0.9))
    monkeypatch.setattr("ggbench.sizing.budget.describe_ram", lambda: ram)
    planned = free()
    assert planned.reserve_bytes == kept_mib * MIB
    assert planned.usable_bytes == ram.available_bytes - kept_mib * MIB
    assert "a quarter of main memory, at most 1 GiB" in planned.reserve_source


@pytest.mark.parametrize(
    ("limit_bytes", "reserve_bytes", "held_gib"),
    [
        pytest.param(None, None, 32, id="all that is free"), pytest.param(12 * GIB, None, 22, id="a limit of each"),
        pytest.param(None, 2 * GIB, 28, id="a reserve of each"), pytest.param(12 * GIB, 2 * GIB, 18, id="both"),
    ],
)  # fmt: skip
def test_gpus_limit_themselves(
    cards: Callable[..., None], limit_bytes: int | None, reserve_bytes: int | None, held_gib: int
) -> None:
    cards(card(22), card(10, 1))
    budget = free(limit_bytes, reserve_bytes)
    assert (budget.held_bytes, budget.ballast_bytes) == (held_gib * GIB, reserve_bytes or 0)


def test_a_search_needs_a_gpu_that_llama_cpp_can_use(cards: Callable[..., None]) -> None:
    """A plan counts with a card that only NVML lists, as a CUDA build would."""
    cards(replace(card(22), backend="CUDA"))
    assert machine_budget(LlamaConfig(), measures=False).on_gpu
    assert not free().on_gpu


def test_a_program_that_lists_its_gpus_has_what_it_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ggbench.sizing.budget.list_gpus", lambda: (H200,))
    setup = LlamaServerConfig()
    for listed, free_gib in ({"CUDA0": GIB}, 100), ({"Vulkan0": 9 * GIB}, 9):
        monkeypatch.setattr(LlamaServerConfig, "listed_gpus", lambda _self, found=listed: found)
        assert free_budget(setup, None).held_bytes == free_gib * GIB


def test_nothing_is_loaded_where_a_reserve_leaves_nothing_or_no_memory_is_free(cards: Callable[..., None]) -> None:
    with pytest.raises(DoesNotFit, match="no main memory is free"):
        free(reserve_bytes=900 * GIB)
    cards(card(22))
    with pytest.raises(DoesNotFit, match="no GPU memory is free"):
        free(8 * GIB, 23 * GIB)
    cards(card(0))
    with pytest.raises(DoesNotFit, match="no GPU memory is free"):
        free()


def test_a_card_that_nobody_knows_is_refused_with_the_nearest_names() -> None:
    with pytest.raises(UsageError, match="rtx-4099") as error:
        describe_machine(["rtx-4099"], None)
    assert "rtx-4090" in error.value.hint
