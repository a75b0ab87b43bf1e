"""GPUs as real cards reported themselves to nvidia-smi, replayed through pynvml."""

from pathlib import Path

import pynvml
import pytest

from ggbench.machine.gpus import driver_problem, find_cuda_gpu, gpu_bandwidth, list_gpus, visible_gpus
from ggbench.machine.records import Gpu
from tests.fakes.nvml import FakeNvml, install, replay

MIB = 1 << 20


def test_every_value_of_a_card_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = replay("rtx-5090")
    install(monkeypatch, nvml)
    assert list_gpus() == (
        Gpu(
            index=0, name="NVIDIA GeForce RTX 5090", uuid="GPU-ea2294a3-4d61-1757-8aed-f91723f16ad2",
            pci_bus_id="00000000:02:00.0", total_bytes=32607 * MIB, free_bytes=32119 * MIB, bus_width_bits=512,
            memory_clock_mhz=14001, driver="570.124.06",
        ),
    )  # fmt: skip
    assert nvml.sessions == 0


def test_unsupported_values_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, replay("gb10", "gtx-680"))
    gb10, gtx_680 = list_gpus()
    assert (gb10.name, gb10.pci_bus_id, gb10.driver) == ("NVIDIA GB10", "0000000F:01:00.0", "580.173.02")
    assert (gb10.total_bytes, gb10.free_bytes) == (None, None)
    assert (gtx_680.total_bytes, gtx_680.free_bytes) == (2000 * MIB, 2000 * MIB)
    for gpu in (gb10, gtx_680):
        assert (gpu.bus_width_bits, gpu.memory_clock_mhz, gpu_bandwidth(gpu)) == (None, None, None)


def test_equal_gpus_are_distinguished_by_bus_id(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, replay("two-a5000"))
    gpus = list_gpus()
    assert [(gpu.index, gpu.pci_bus_id) for gpu in gpus] == [(0, "00000000:81:00.0"), (1, "00000000:C1:00.0")]
    assert find_cuda_gpu(gpus, "CUDA0", "0000:c1:00.0") is gpus[1]


def test_a_lost_gpu_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeNvml([{}, *replay("h200").cards]))
    assert [(gpu.index, gpu.name) for gpu in list_gpus()] == [(1, "NVIDIA H200")]


@pytest.mark.parametrize(
    "nvml",
    [
        pytest.param(None, id="no driver"),
        pytest.param(FakeNvml([], init_status=pynvml.NVML_ERROR_DRIVER_NOT_LOADED), id="a driver that is not loaded"),
        pytest.param(FakeNvml([]), id="a driver without a GPU"),
    ],
)
def test_no_gpu_is_no_error(monkeypatch: pytest.MonkeyPatch, nvml: FakeNvml | None) -> None:
    install(monkeypatch, nvml)
    assert list_gpus() == ()


@pytest.mark.parametrize(
    ("card", "bits", "mhz", "datasheet_gb_per_s"),
    [
        ("GeForce RTX 4090", 384, 10501, 1008), ("GeForce RTX 3090", 384, 9751, 936),
        ("A100 80GB PCIe", 5120, 1512, 1935), ("A100 80GB SXM", 5120, 1593, 2039), ("H100 SXM", 5120, 2619, 3352),
        ("Tesla T4", 256, 5001, 320),
    ],
)  # fmt: skip
def test_bandwidth_agrees_with_the_datasheet(card: str, bits: int, mhz: int, datasheet_gb_per_s: float) -> None:
    gpu = Gpu(0, card, None, None, None, None, bits, mhz, None)
    bandwidth = gpu_bandwidth(gpu)
    assert bandwidth is not None
    assert round(bandwidth.bytes_per_s / 1e9) == pytest.approx(datasheet_gb_per_s, abs=1)
    assert bandwidth.source == f"NVML: {bits} bit x {mhz} MHz x 2"


VISIBLE = (
    Gpu(0, "Card A", "GPU-aaaa1111-0000-0000-0000-000000000001", "00000000:01:00.0", None, None, None, None, None),
    Gpu(1, "Card B", "GPU-aaaa2222-0000-0000-0000-000000000002", "00000000:41:00.0", None, None, None, None, None),
    Gpu(2, "Card C", "GPU-bbbb3333-0000-0000-0000-000000000003", "00000000:C1:00.0", None, None, None, None, None),
)
"""Three made-up cards."""


@pytest.mark.parametrize(
    ("names", "indices"),
    [
        pytest.param(None, [0, 1, 2], id="nothing hides any"),
        pytest.param("", [], id="an empty list hides all"),
        pytest.param("2,0", [2, 0], id="indices in their order"),
        pytest.param(" gpu-BBBB , GPU-aaaa1 ", [2, 0], id="beginnings of UUIDs, in any case"),
        pytest.param("1,7,0", [1], id="an index that is not there ends the list"),
        pytest.param("GPU-aaaa,0", [], id="so does a beginning of two UUIDs"),
        pytest.param("MIG-3c0e2c2f-1c5a-5b0e-9a9a-000000000000,1", [1], id="a part of a GPU is none of them"),
    ],
)
def test_cuda_visible_devices_picks_and_orders(
    monkeypatch: pytest.MonkeyPatch, names: str | None, indices: list[int]
) -> None:
    monkeypatch.setattr("ggbench.machine.gpus.list_gpus", lambda: VISIBLE)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if names is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", names)
    assert [gpu.index for gpu in visible_gpus()] == indices


@pytest.mark.parametrize(
    ("device", "device_id", "environ", "index"),
    [
        pytest.param("CUDA0", "0000:41:00.0", {}, 1, id="a bus id with a short domain"),
        pytest.param("CUDA0", "0001:41:00.0", {}, None, id="another domain is another GPU"),
        pytest.param("CUDA0", "GPU-aaaa2222-0000-0000-0000-000000000002", {}, 1, id="a UUID"),
        pytest.param("CUDA0", None, {}, None, id="no id: CUDA puts the fastest first, whichever that is"),
        pytest.param("CUDA1", None, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, 1, id="no id, but NVML's order"),
        pytest.param(
            "CUDA1", None, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "2,0"}, 0, id="the same, picked"
        ),
        pytest.param("CUDA0", None, {"CUDA_VISIBLE_DEVICES": "GPU-bbbb"}, 2, id="no id, but picked by UUID"),
        pytest.param("CUDA0", None, {"CUDA_VISIBLE_DEVICES": "MIG-3c0e2c2f"}, None, id="a part of a GPU"),
        pytest.param("Vulkan0", None, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, None, id="not a CUDA device"),
    ],
)
def test_llama_cpps_device_is_found_among_nvmls(
    monkeypatch: pytest.MonkeyPatch, device: str, device_id: str | None, environ: dict[str, str], index: int | None
) -> None:
    for name in ("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    found = find_cuda_gpu(VISIBLE, device, device_id)
    assert (found and found.index) == index


@pytest.mark.parametrize(
    ("nvml", "device_class", "problem"),
    [
        pytest.param(None, "0x030200\n", "NVML Shared Library Not Found", id="no driver"),
        pytest.param(FakeNvml([], init_status=pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH), "0x030200\n",
                     "RM has detected an NVML/RM version mismatch.", id="driver updated while it ran"),
        pytest.param(None, "0x040300\n", "", id="the card's sound device alone"),
    ],
)  # fmt: skip
def test_a_card_without_a_working_driver_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, nvml: FakeNvml | None, device_class: str, problem: str
) -> None:
    install(monkeypatch, nvml)
    monkeypatch.setattr("ggbench.machine.gpus.SYSFS", tmp_path)
    device = tmp_path / "bus/pci/devices/0000:01:00.0"
    assert driver_problem() == ""
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text(device_class)
    assert driver_problem() == problem
