"""A machine as it is described on a command line."""

import pytest

from ggbench.errors import UsageError
from ggbench.machine.description import MainMemory, describe_machine, parse_gpus, parse_host
from ggbench.stats.decode_timing import Bandwidth
from ggbench.units import GIB


@pytest.mark.parametrize(
    ("text", "names", "gib"),
    [
        ("rtx-3090x2", ["NVIDIA GeForce RTX 3090"] * 2, [24, 24]),
        ("rtx-3060, rtx-4090", ["NVIDIA GeForce RTX 3060", "NVIDIA GeForce RTX 4090"], [12, 24]),
        ("7900-xtx", ["AMD Radeon RX 7900 XTX"], [24]),
        ("24GiBx3", ["a GPU with the given memory"] * 3, [24] * 3),
    ],
)
def test_gpus_by_name_or_size_and_how_many(text: str, names: list[str], gib: list[float]) -> None:
    found = parse_gpus(text)
    assert [device.name for device in found] == names
    assert [device.memory_bytes / GIB for device in found] == gib


def test_a_name_that_begins_with_a_number_is_no_size() -> None:
    """Integrated graphics come with several sizes of main memory, which `--ram` decides."""
    with pytest.raises(UsageError, match="matches 4 GPUs"):
        parse_gpus("780m")
    [device] = describe_machine(["780m"], "32GiB@ddr5-5600x2").devices
    assert ("780M" in device.name, device.shared_bytes) == (True, 32 * GIB)


def test_the_gpu_of_a_machine_with_one_memory_takes_its_share() -> None:
    [device] = parse_gpus("m3-max-36gb")
    assert (device.memory_bytes, device.shared_bytes, device.backend) == (27 * GIB, 36 * GIB, "MTL")
    own, other = device.bandwidth, describe_machine(["m3-max-36gb"], "32GiB@ddr4-3200x2")
    assert own and (own.bytes_per_s, None) == (other.devices[0].bandwidth.bytes_per_s, other.host)  # type: ignore[union-attr]


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
        (["rtx-3090x0"], None, "is 0 GPUs"), (["rtx-3090x17"], None, "is 17 GPUs"), (["rtx-3090,"], None, "empty name"),
        (["rtx-3090x9", "rtx-3060x9"], None, "18 GPUs are described"), (["24GiB@936"], None, "is not a bandwidth"),
        (["geforce-256"], None, "geforce-256"), ([], "lots", "is not a size"), ([], "64GiB@fast", "is not a bandwidth"),
        ([], "ddr5-6000x0", "no channels"), ([], "ddr6-3200x2", "is not a size"),
        (["rtx-3090"], "0GiB", "needs some main memory"),
        (["rtx-3090,m4-pro-24gb"], None, "a Mac has no other GPU"),
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
    with pytest.raises(UsageError, match="no GPU 2"):
        with_gpu.only(2)
