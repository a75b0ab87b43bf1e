"""A machine as it is described on a command line."""

import pytest

from ggbench.errors import UsageError
from ggbench.machine.description import (
    MainMemory,
    brings_memory,
    describe_machine,
    parse_gpus,
    parse_host,
)
from ggbench.stats.decode_timing import Bandwidth
from ggbench.units import GIB, MIB


@pytest.mark.parametrize(
    ("text", "names", "mib"),
    [
        ("rtx-3090x2", ["NVIDIA GeForce RTX 3090"] * 2, [24_121] * 2),
        ("rtx-3060, rtx-4090", ["NVIDIA GeForce RTX 3060", "NVIDIA GeForce RTX 4090"], [11_906, 24_080]),
        ("7900-xtx", ["AMD Radeon RX 7900 XTX"], [24_560]),
        ("24GiBx3", ["a GPU with the given memory"] * 3, [24_576] * 3),
        ("2x rtx-3090", ["NVIDIA GeForce RTX 3090"] * 2, [24_121] * 2),
        ("2 × 3090", ["NVIDIA GeForce RTX 3090"] * 2, [24_121] * 2),
        ("rtx-3060 + 2x 4090", ["NVIDIA GeForce RTX 3060", *["NVIDIA GeForce RTX 4090"] * 2], [11_906, 24_080, 24_080]),
        ("3060+rtx 4090", ["NVIDIA GeForce RTX 3060", "NVIDIA GeForce RTX 4090"], [11_906, 24_080]),
        ("Ryzen AI Max+ 395", ["AMD Radeon 8060S"], [65_536]),
        ("16gb", ["a GPU with the given memory"], [16e9 / MIB]),
        ("2x 16 gb", ["a GPU with the given memory"] * 2, [16e9 / MIB] * 2),
    ],
)
def test_gpus_by_name_or_size_and_how_many(text: str, names: list[str], mib: list[float]) -> None:
    found = parse_gpus(text)
    assert [device.name for device in found] == names
    assert [device.memory_bytes / MIB for device in found] == mib


def test_a_name_that_begins_with_a_number_is_no_size() -> None:
    """Integrated graphics come with any size of main memory, which `--ram` or the name says."""
    with pytest.raises(UsageError, match="matches 4 GPUs") as error:
        parse_gpus("780m")
    assert "--ram" in error.value.hint
    [device] = parse_gpus("780m-54gb")
    assert ("780M" in device.name, device.shared_bytes, device.memory_bytes) == (True, 54 * GIB, 27 * GIB)


@pytest.mark.parametrize(
    ("gpu", "ram", "memory_gib", "total_gib", "gb_s", "assumed"),
    [
        ("radeon-890m", "54GiB@ddr5-5600x2", 27, 54, 89.6, ""),
        ("radeon-890m-64gb", "54GiB@60GB/s", 27, 54, 60, ""),
        ("radeon-890m-64gb", "ddr5-5600x2", 32, 64, 89.6, ""),
        ("radeon-890m", "48GiB", 24, 48, 128, "LPDDR5X-8000"),
        ("radeon-680m", "24GiB", 12, 24, 102.4, "LPDDR5-6400"),
        ("arc-140t", "48GiB@ddr5-6400x2", 24, 48, 102.4, ""),
        ("arc-140v", "32GiB", 16, 32, 136.5, ""),
        ("strix-halo", "96GiB", 48, 96, 256, ""),
        ("dgx-spark", "121.5GiB", 121.5, 121.5, 273, ""),
        ("orin-nano", "5GiB", 5, 5, 34, ""),
        ("m3-max-36gb", "48GiB", 37.44, 48, 400, ""),
        ("m3-max-36gb", "36GiB@280GB/s", 28.08, 36, 280, ""),
    ],
)
def test_unified_memory_is_the_memory_that_is_described(
    gpu: str, ram: str, memory_gib: float, total_gib: float, gb_s: float, assumed: str
) -> None:
    """Any size and modules, of which the GPU has its family's share; a Mac has only what it is sold with."""
    machine = describe_machine([gpu], ram)
    [device] = machine.devices
    assert device.bandwidth is not None
    assert device.memory_bytes == round(memory_gib * GIB)
    assert (device.shared_bytes or 0) == total_gib * GIB
    assert device.bandwidth.bytes_per_s / 1e9 == pytest.approx(gb_s, abs=0.05)
    assert device.bandwidth.assumed == assumed
    assert machine.host == MainMemory(device.shared_bytes, device.bandwidth)


def test_a_given_share_of_unified_memory_is_within_it() -> None:
    machine = describe_machine(["m4-pro-24gb"], None, vram="18GiB")
    assert machine.host is not None
    assert (machine.host.memory_bytes, machine.devices[0].backend) == (24 * GIB, "MTL")
    assert (machine.devices[0].memory_bytes, machine.devices[0].shared_bytes) == (18 * GIB, 24 * GIB)
    with pytest.raises(UsageError, match=r"cannot use 44.0 GiB of 24.0 GiB"):
        describe_machine(["m4-pro-24gb"], None, vram="44GiB")


def test_what_has_its_memory_soldered_brings_it() -> None:
    found = [brings_memory(gpu) for gpu in ("strix-halo", "m5-ultra-96gb", "rtx-3060", "radeon-890m", "24GiB")]
    assert found == [True, True, False, False, False]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("64GiB", MainMemory(64 * GIB, None)),
        ("64GiB@ddr5-6000x2", MainMemory(64 * GIB, Bandwidth(96e9, "2 channels x 8 bytes x 6000 MT/s"))),
        ("ddr4-3200x8", MainMemory(None, Bandwidth(204.8e9, "8 channels x 8 bytes x 3200 MT/s"))),
    ],
)
def test_main_memory(text: str, expected: MainMemory) -> None:
    assert parse_host(text) == expected


@pytest.mark.parametrize(
    ("gpus", "ram", "message"),
    [
        (["rtx-3090x0"], None, "is 0 GPUs"), (["rtx-3090x17"], None, "17 GPUs are described"),
        (["rtx-3090,"], None, "empty name"),
        (["rtx-3090x9", "rtx-3060x9"], None, "18 GPUs are described"), (["24GiB@936"], None, "is not a bandwidth"),
        (["geforce-256"], None, "geforce-256"), ([], "lots", "is not a size"), ([], "64GiB@fast", "is not a bandwidth"),
        ([], "ddr5-6000x0", "no channels"), ([], "ddr6-3200x2", "is not a size"),
        (["rtx-3090"], "0GiB", "needs some main memory"),
        (["m4-pro-24gb"], "54GiB", "M4 Pro is not sold with 54.0 GiB"), (["radeon-890m-0gb"], None, "is none of the"),
        (["radeon-890m"], "54GiB@ddr9-1", "is not a bandwidth or memory"),
    ],
)  # fmt: skip
def test_a_wrong_description(gpus: list[str], ram: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        describe_machine(gpus, ram)
    assert error.value.hint


def test_a_bandwidth_is_that_of_the_gpus_or_of_main_memory() -> None:
    with_gpu = describe_machine(["rtx-3090x2"], "64GiB@50GB/s", rate="100GB/s")
    assert [device.bandwidth for device in with_gpu.devices] == [Bandwidth(100e9, "given")] * 2
    assert with_gpu.host == MainMemory(64 * GIB, Bandwidth(50e9, "given"))
    assert describe_machine([], "64GiB", rate="100GB/s").host == MainMemory(64 * GIB, Bandwidth(100e9, "given"))
