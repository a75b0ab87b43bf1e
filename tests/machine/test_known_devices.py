"""Devices known by name, as people and drivers write it."""

import tomllib
from collections import Counter
from importlib.resources import files
from typing import Any

import pytest

from ggbench.errors import UsageError
from ggbench.machine.known_devices import KnownDevice, find_device, known_devices, recognize_device
from ggbench.units import GIB, MIB

DOCUMENT = tomllib.loads((files("ggbench.machine") / "known_devices.toml").read_text(encoding="utf-8"))
ENTRIES: list[dict[str, Any]] = [family | entry for family in DOCUMENT["family"] for entry in family["devices"]]
PINNED = [entry for entry in ENTRIES if "bus_bits" in entry]
ROUNDED = {"h100-pcie": 0.02, "dgx-spark": 0.004, "orin-nano-super": 0.005}


FLOP = {"clock": 2, "clock2": 4, "packed": 4, "dual": 8, "tpu_clock": 2, "tpu_packed": 4, "xe": 512}
"""What a core computes in a cycle, by the source of a rate without matrix cores."""


def test_a_bandwidth_is_bus_width_times_the_rate_of_a_pin() -> None:
    """A figure copied from the wrong column would fail; some datasheets round down, the H100 PCIe's to 2 TB/s."""

    def is_off(entry: dict[str, Any]) -> bool:
        computed = entry["bus_bits"] * entry["pin_gbps"] / 8
        return bool(entry["bandwidth_gb_s"] != pytest.approx(computed, rel=ROUNDED.get(entry["id"], 0.004)))

    assert len(PINNED) > 250
    assert [entry["id"] for entry in PINNED if is_off(entry)] == []


def test_a_rate_without_matrix_cores_is_what_the_cores_compute_in_a_second() -> None:
    derived = [entry for entry in ENTRIES if entry.get("fp16_source") in FLOP]
    computed = {
        entry["id"]: FLOP[entry["fp16_source"]] * entry["cores"] * entry["boost_mhz"] / 1e6 for entry in derived
    }
    assert len(derived) > 100
    assert {entry["id"]: entry["fp16_tflops"] for entry in derived} == pytest.approx(computed, rel=5e-4)


@pytest.mark.parametrize(
    ("id_", "bandwidth_gb_s", "matrix_tflops", "vector_tflops"),
    [
        ("rtx-4060-ti-16gb", 288.0, 88.26, 22.06), ("rtx-a5000", 768.0, 111.1, 27.77),
        ("rtx-4090", 1008.0, 330.3, 82.58),
        ("rx-6900-xt", 512.0, None, 46.08), ("rx-7900-xtx", 960.0, 122.9, 122.9), ("rx-9070-xt", 640.0, 194.6, 97.32),
        ("arc-b580", 456.0, 116.5, 27.34), ("radeon-8060s", 256.0, 59.39, 59.39), ("agx-orin", 204.8, 42.6, None),
        ("m1-8gb", 68.26, None, 2.6), ("gtx-1660", 192.0, None, None),
        ("gtx-1080-ti", 484.0, None, None), ("rtx-a2000-laptop", 192.0, 34.55, 8.637),
        ("arc-b390-32gb", 153.6, 61.0, None),
    ],
)  # fmt: skip
def test_figures_agree_with_what_vendors_state(
    id_: str, bandwidth_gb_s: float, matrix_tflops: float | None, vector_tflops: float | None
) -> None:
    """Derived rates are those of the vendors' pages: 123 TFLOPS for the RX 7900 XTX, 195 for the RX 9070 XT."""
    device = find_device(id_)
    figures = (device.bandwidth_gb_s, device.fp16_matrix_tflops, device.fp16_tflops)
    assert figures == (bandwidth_gb_s, matrix_tflops, vector_tflops)


def test_ids_are_unique_and_name_their_device() -> None:
    assert [each for each, n in Counter(device.id for device in known_devices()).items() if n > 1] == []
    assert [device.id for device in known_devices() if find_device(device.id) is not device] == []


def test_names_with_a_size_find_the_device_of_that_size() -> None:
    for device in known_devices():
        same = [each for each in known_devices() if each.name == device.name and each.memory_gib == device.memory_gib]
        assert find_device(f"{same[0].name} {device.memory_gib:g} GB") is device, device.id


def test_figures_are_plausible_and_have_sources() -> None:
    def is_plausible(device: KnownDevice) -> bool:
        rates = (device.fp16_matrix_tflops, device.fp16_tflops)
        return (
            2 <= device.memory_gib <= 512
            and 0.5 <= device.gpu_share <= 1
            and 30 <= device.bandwidth_gb_s <= 8000
            and all(rate is None or 2 < rate < 3000 for rate in rates)
            and all((device.memory_source, device.bandwidth_source))
            and bool(device.fp16_matrix_source) == (device.fp16_matrix_tflops is not None)
            and bool(device.fp16_source) == (device.fp16_tflops is not None)
            and (device.vendor, device.backend) in BACKENDS
            and bool(device.generation)
        )

    assert [device.id for device in known_devices() if not is_plausible(device)] == []


BACKENDS = {("nvidia", "CUDA"), ("amd", "ROCm"), ("amd", "Vulkan"), ("intel", "SYCL"), ("apple", "Metal")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rtx-4090", "rtx-4090"), ("RTX 4090", "rtx-4090"), ("4090", "rtx-4090"), ("4090 24 GiB", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"), ("4070 ti", "rtx-4070-ti"), ("4070ti super", "rtx-4070-ti-super"),
        ("a6000", "rtx-a6000"), ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"), ("h100 sxm", "h100-sxm"),
        ("gb10", "dgx-spark"), ("rtx-3060-12gb", "rtx-3060"), ("rtx 3060 8 GB", "rtx-3060-8gb"),
        ("rtx-4070-laptop", "rtx-4070-laptop"), ("rtx 4070 mobile", "rtx-4070-laptop"),
        ("rx-7900-xtx", "rx-7900-xtx"), ("7900xtx", "rx-7900-xtx"), ("RX 7900 XT", "rx-7900-xt"), ("6600", "rx-6600"),
        ("strix-halo", "radeon-8060s"), ("ryzen-ai-max-395", "radeon-8060s"), ("strix-halo-64gb", "radeon-8060s-64gb"),
        ("arc-b580", "arc-b580"), ("A770", "arc-a770"), ("arc pro b60", "arc-pro-b60"),
        ("Apple M3 Max 64 GB", "m3-max-64gb"), ("1080ti", "gtx-1080-ti"), ("thor", "agx-thor"),
        ("gorgon-halo", "radeon-8065s"), ("rtx 2000 ada laptop", "rtx-2000-ada-laptop"), ("m6 24 GB", "m6-24gb"),
        ("m4-max-48", "m4-max-48gb"), ("m4max48", "m4-max-48gb"),
        ("rtx 4060 ti 16", "rtx-4060-ti-16gb"), ("rtx 4060 ti 16gb", "rtx-4060-ti-16gb"),
        ("gtx 1060", "gtx-1060"), ("1060 3gb", "gtx-1060-3gb"), ("GTX 1050 Ti", "gtx-1050-ti"), ("rx580", "rx-580"),
        ("RX 580 4 GB", "rx-580-4gb"), ("rx 570 8", "rx-570-8gb"), ("rx-560", "rx-560"), ("m4 max 128", "m4-max-128gb"),
    ],
)  # fmt: skip
def test_a_device_is_found_in_any_spelling(text: str, expected: str) -> None:
    assert find_device(text).id == expected


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("rtx-4091", "rtx-4090"), ("rtx-4090-48gb", "rtx-4090"), ("rtx 9999", "rtx-4090"),
        ("rx-7950-xtx", "rx-7900-xtx"), ("m7-ultra-64gb", "m2-ultra-64gb"), ("", ""), ("voodoo2", ""),
    ],
)  # fmt: skip
def test_an_unknown_device_is_described_by_its_figures(text: str, near: str) -> None:
    with pytest.raises(UsageError, match=r"is none of the \d{3} GPUs") as caught:
        find_device(text)
    assert "describe the card: --gpu 24GiB@960GB/s" in caught.value.hint
    assert (near in caught.value.hint) if near else ("did you mean" not in caught.value.hint)


def test_a_number_alone_is_a_size() -> None:
    with pytest.raises(UsageError) as caught:
        find_device("8")
    assert caught.value.hint == "describe the card: --gpu 8GiB"


@pytest.mark.parametrize(
    ("text", "candidates"),
    [
        ("4060 ti", "rtx-4060-ti-8gb, rtx-4060-ti-16gb"),
        ("a100", "a100-pcie-40gb, a100-pcie-80gb, a100-sxm-40gb, a100-sxm-80gb"),
        ("m3-max", "m3-max-36gb, m3-max-48gb, m3-max-64gb, m3-max-96gb, m3-max-128gb"),
        ("m4", "m4-16gb, m4-24gb, m4-32gb"),
    ],
)
def test_an_ambiguous_name_is_an_error_that_lists_the_candidates(text: str, candidates: str) -> None:
    with pytest.raises(UsageError, match=f"matches {candidates.count(',') + 1} GPUs") as caught:
        find_device(text)
    assert caught.value.hint == f"choose one: {candidates}"


@pytest.mark.parametrize(
    ("name", "memory_gib", "expected"),
    [
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 15.99, "rtx-4090-laptop"),
        ("NVIDIA GeForce RTX 3060", 11.75, "rtx-3060"),
        ("NVIDIA GeForce RTX 3060", 7.99, "rtx-3060-8gb"),
        ("NVIDIA H100 80GB HBM3", 79.6, "h100-sxm"),
        ("NVIDIA GB10", None, "dgx-spark"),
        ("Orin (nvgpu)", 61.4, "agx-orin"),
        ("AMD Radeon RX 7900 XTX (RADV NAVI31)", 23.98, "rx-7900-xtx"),
        ("AMD Radeon 8060S Graphics (RADV STRIX_HALO)", 62.5, "radeon-8060s"),
        ("AMD Instinct MI60 / MI50 (RADV VEGA20)", 31.98, "mi50-32gb"),
        ("gfx908", None, "mi100"),
        ("Intel(R) Arc(tm) A770 Graphics (DG2)", 15.9, "arc-a770"),
        ("Intel(R) Arc(TM) Graphics", 15.6, "arc-meteor-lake-32gb"),
        ("AMD Radeon 890M Graphics (RADV STRIX1)", 24.0, "radeon-890m-32gb"),
        ("Intel(R) Arc(TM) Graphics B390", 15.7, "arc-b390-32gb"),
        ("NVIDIA RTX A2000 8GB Laptop GPU", 8.0, "rtx-a2000-laptop-8gb"),
        ("NVIDIA Thor", 122.0, "agx-thor"),
        ("Apple M2 Max", 72.0, "m2-max-96gb"),
        ("Apple M3 Max", 107.52, "m3-max-128gb"),
    ],
)
def test_a_drivers_name_is_recognized(name: str, memory_gib: float | None, expected: str) -> None:
    """Names as NVML, Vulkan, ROCm and Metal report them, with the memory that the GPU sees."""
    found = recognize_device(name, None if memory_gib is None else round(memory_gib * GIB))
    assert found is not None
    assert found.id == expected


@pytest.mark.parametrize(
    ("name", "memory_gib"),
    [
        ("AMD Radeon Graphics (RADV VEGA20)", 32.0),
        ("llvmpipe (LLVM 15.0.6, 256 bits)", 16.0),
        ("NVIDIA GeForce RTX 3060", None),
        ("NVIDIA GeForce RTX 4090 Special", 24.0),
    ],
)
def test_a_name_that_several_devices_share_is_not_recognized(name: str, memory_gib: float | None) -> None:
    assert recognize_device(name, None if memory_gib is None else round(memory_gib * GIB)) is None


@pytest.mark.parametrize(
    ("id_", "gpu_mib"),
    [("m1-8gb", 5461), ("m1-16gb", 12124), ("m3-pro-18gb", 13639), ("m4-pro-24gb", 18186), ("m5-32gb", 25559),
     ("m3-max-36gb", 28754), ("m4-pro-48gb", 38339), ("m5-pro-64gb", 53084), ("m3-max-128gb", 110100),
     ("radeon-8060s", 65536)],
)  # fmt: skip
def test_a_gpu_takes_its_part_of_unified_memory(id_: str, gpu_mib: float) -> None:
    """Apple's are the limits in logs of llama.cpp on macOS 26: 18,185 MiB of 24 GiB, 110,100 MiB of 128 GiB."""
    assert find_device(id_).gpu_bytes / MIB == pytest.approx(gpu_mib, abs=1)


@pytest.mark.parametrize(
    ("id_", "least_mib", "most_mib"),
    [
        ("t4", 14912, 14912), ("a40", 45486, 45498), ("l40s", 45467, 45588), ("l4", 22559, 22563),
        ("a100-sxm-80gb", 81151, 81151), ("h100-sxm", 81079, 81081), ("h200", 143155, 143165), ("b200", 182630, 182640),
        ("rtx-4070", 11866, 11903), ("rtx-3090", 24121, 24159), ("rtx-4090", 24080, 24564), ("rtx-3060", 11906, 12037),
        ("rtx-5090", 32109, 32119), ("rtx-5060-ti-16gb", 16053, 16311), ("gtx-1650", 3712, 3716),
        ("rtx-4060-laptop", 7815, 7815), ("rtx-4070-laptop", 7805, 7805), ("rtx-a6000", 48537, 48547),
        ("rx-7900-xtx", 24560, 24560), ("rx-9060-xt-16gb", 16304, 16304), ("radeon-ai-pro-r9700", 32624, 32624),
        ("arc-a770", 15460, 15473), ("arc-pro-b70", 32656, 32657), ("dgx-spark", 122502, 124610),
        ("agx-orin", 62827, 62827), ("orin-nano", 7607, 7619),
    ],
)  # fmt: skip
def test_a_card_has_what_drivers_show_of_it(id_: str, least_mib: int, most_mib: int) -> None:
    """From logs of llama.cpp and errors of PyTorch in public repositories; of the datasheet T4s have 16,384 MiB."""
    device = find_device(id_)
    assert least_mib - 1 <= device.gpu_bytes / MIB <= most_mib + 1
    assert device.share_source in device.memory_source


def test_every_card_with_memory_of_its_own_shows_less_than_its_datasheet_and_says_why() -> None:
    """Some hundred MiB of a GeForce, 6 to 9 % of a data centre's GDDR, and little of AMD's."""
    own = [device for device in known_devices() if not device.is_unified]
    shown = {device.id: device.gpu_bytes / (device.memory_gib * GIB) for device in own}
    assert [id_ for id_, share in shown.items() if not 0.88 < share < 1] == []
    assert [device.id for device in own if "show" not in device.memory_source] == []
    assert all(0.9 < shown[id_] < 0.94 for id_ in ("t4", "a2", "a10", "a10g", "l4", "a40", "l40", "l40s", "p40"))


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if "tops" in entry], ids=lambda entry: entry["id"])
def test_a_matrix_rate_is_its_part_of_the_vendors_tops(entry: dict[str, Any]) -> None:
    part = {"xmx": 2, "fp4": 8}[entry["fp16_matrix_source"]]
    assert entry["fp16_matrix_tflops"] == pytest.approx(entry["tops"] / part, rel=1e-3)


@pytest.mark.parametrize("entry", [e for e in ENTRIES if "assumed_memory" in e], ids=lambda entry: entry["id"])
def test_an_assumed_memory_is_as_fast_as_its_name_says(entry: dict[str, Any]) -> None:
    assert entry["assumed_memory"].rpartition("-")[2] == f"{entry['pin_gbps'] * 1000:.0f}"
