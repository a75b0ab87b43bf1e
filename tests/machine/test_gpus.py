"""GPUs through a stand-in for pynvml that answers with what real cards answer, and refuses what they refuse."""

# ruff: noqa: ANN401 - the stand-in has the methods of pynvml, which says what they do and has no types

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ggbench.machine.gpus import gpu_bandwidth, list_gpus
from ggbench.records import Gpu


class NvmlError(Exception):
    """The base of NVML's errors."""


class NotSupported(NvmlError):
    """NVML's word for a question that this chip does not answer."""


RTX_4090: dict[str, Any] = {
    "Name": "NVIDIA GeForce RTX 4090",
    "UUID": "GPU-3a1f6f2e-0c44-2f6b-9a42-6d0a1f4b7c11",
    "PciInfo": SimpleNamespace(busId="00000000:01:00.0"),
    "MemoryInfo": SimpleNamespace(total=25757220864, free=24830476288, used=926744576),
    "MemoryBusWidth": 384,
    "MaxClockInfo": 10501,
}

# A chip that shares the system's memory has no memory of its own to tell about.
GB10: dict[str, Any] = {
    "Name": "NVIDIA GB10",
    "UUID": "GPU-77d2c1f0-5b1e-4d0e-8f5c-2f2f9f0a9b3d",
    "PciInfo": SimpleNamespace(busId="0000000F:01:00.0"),
}


class FakeNvml(ModuleType):
    """The part of pynvml that ggbench asks, over a list of cards."""

    NVMLError = NvmlError
    NVML_CLOCK_MEM = 2

    def __init__(self, cards: list[dict[str, Any]], init_error: NvmlError | None = None) -> None:
        super().__init__("pynvml")
        self.cards = cards
        self.init_error = init_error
        self.sessions = 0

    def nvmlInit(self) -> None:
        if self.init_error:
            raise self.init_error
        self.sessions += 1

    def nvmlShutdown(self) -> None:
        self.sessions -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return "570.86.15"

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:
        if not self.cards[index]:
            raise NvmlError("GPU is lost")
        return self.cards[index]

    def nvmlDeviceGetMaxClockInfo(self, handle: dict[str, Any], kind: int) -> Any:
        assert kind == self.NVML_CLOCK_MEM
        return self._answer(handle, "MaxClockInfo")

    def __getattr__(self, name: str) -> Any:
        prefix = "nvmlDeviceGet"
        if not name.startswith(prefix):
            raise AttributeError(name)
        return lambda handle: self._answer(handle, name.removeprefix(prefix))

    @staticmethod
    def _answer(handle: dict[str, Any], question: str) -> Any:
        if question not in handle:
            raise NotSupported(question)
        return handle[question]


def install(monkeypatch: pytest.MonkeyPatch, nvml: FakeNvml | None) -> None:
    """Makes `import pynvml` give the stand-in, or fail when it is None."""
    monkeypatch.setitem(sys.modules, "pynvml", nvml)


def test_every_fact_of_a_card_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    """A desktop card answers everything, and NVML is shut down afterwards."""
    nvml = FakeNvml([RTX_4090])
    install(monkeypatch, nvml)

    assert list_gpus() == (
        Gpu(
            index=0,
            name="NVIDIA GeForce RTX 4090",
            uuid="GPU-3a1f6f2e-0c44-2f6b-9a42-6d0a1f4b7c11",
            pci_bus_id="00000000:01:00.0",
            total_bytes=25757220864,
            free_bytes=24830476288,
            bus_width_bits=384,
            memory_clock_mhz=10501,
            driver="570.86.15",
        ),
    )
    assert nvml.sessions == 0


def test_what_a_chip_does_not_tell_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal costs that one fact and no bandwidth is made up from the rest."""
    install(monkeypatch, FakeNvml([GB10]))

    (gpu,) = list_gpus()

    assert gpu.name == "NVIDIA GB10"
    assert (gpu.total_bytes, gpu.free_bytes, gpu.bus_width_bits, gpu.memory_clock_mhz) == (None, None, None, None)
    assert gpu_bandwidth(gpu) is None


def test_a_zero_clock_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Virtual GPUs answer 0 where they mean nothing; that is no bandwidth of zero."""
    install(monkeypatch, FakeNvml([{**RTX_4090, "MaxClockInfo": 0}]))

    (gpu,) = list_gpus()

    assert gpu.memory_clock_mhz is None
    assert gpu_bandwidth(gpu) is None


def test_a_lost_gpu_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card that fell off the bus is left out; the next one keeps NVML's index."""
    install(monkeypatch, FakeNvml([{}, RTX_4090]))

    assert [gpu.index for gpu in list_gpus()] == [1]


@pytest.mark.parametrize(
    "nvml",
    [
        pytest.param(None, id="pynvml is not installed"),
        pytest.param(FakeNvml([], NvmlError("NVML Shared Library Not Found")), id="no driver"),
        pytest.param(FakeNvml([]), id="a driver without a GPU"),
    ],
)
def test_no_gpu_is_no_error(monkeypatch: pytest.MonkeyPatch, nvml: FakeNvml | None) -> None:
    """A machine without an NVIDIA GPU has an empty list."""
    install(monkeypatch, nvml)

    assert list_gpus() == ()


@pytest.mark.parametrize(
    ("card", "bits", "mhz", "datasheet_gb_per_s"),
    [
        ("GeForce RTX 4090", 384, 10501, 1008),
        ("GeForce RTX 3090", 384, 9751, 936),
        ("A100 80GB PCIe", 5120, 1512, 1935),
        ("A100 80GB SXM", 5120, 1593, 2039),
        ("H100 SXM", 5120, 2619, 3352),
        ("Tesla T4", 256, 5001, 320),
    ],
)
def test_bandwidth_agrees_with_the_datasheet(card: str, bits: int, mhz: int, datasheet_gb_per_s: float) -> None:
    """Bus width x clock x 2 is what NVIDIA prints for GDDR and HBM cards, to its last digit."""
    gpu = Gpu(0, card, None, None, None, None, bits, mhz, None)

    bandwidth = gpu_bandwidth(gpu)

    assert bandwidth is not None
    assert round(bandwidth.bytes_per_s / 1e9) == pytest.approx(datasheet_gb_per_s, abs=1)
    assert bandwidth.source == f"NVML: {bits} bit x {mhz} MHz x 2"
