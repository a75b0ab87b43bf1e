"""A stand-in for pynvml: its cards are made up after what real ones answer and refuse, and nothing was measured."""

# ruff: noqa: ANN401 - the stand-in has the methods of pynvml, which says what they do and has no types

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


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
    "ClockInfo": {1: 2520, 2: 10251},
    "Temperature": 71,
    "PowerUsage": 318_450,
    "TotalEnergyConsumption": 48_120_733,
    "CurrentClocksEventReasons": 0x04,
    "ComputeRunningProcesses": [
        SimpleNamespace(pid=4242, usedGpuMemory=6_442_450_944),
        SimpleNamespace(pid=911, usedGpuMemory=314_572_800),
    ],
    "GraphicsRunningProcesses": [SimpleNamespace(pid=911, usedGpuMemory=314_572_800)],
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
    NVML_TEMPERATURE_GPU = 0
    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2

    def __init__(self, cards: list[dict[str, Any]], init_error: NvmlError | None = None) -> None:
        super().__init__("pynvml")
        self.cards = cards
        self.init_error = init_error
        self.sessions = 0
        self.process_names = {4242: "/usr/bin/python3.11"}

    def nvmlInit(self) -> None:
        if self.init_error:
            raise self.init_error
        self.sessions += 1

    def nvmlShutdown(self) -> None:
        self.sessions -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return "570.86.15"

    def nvmlSystemGetProcessName(self, pid: int) -> str:
        if pid not in self.process_names:
            raise NvmlError("Not Found")
        return self.process_names[pid]

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:
        if not self.cards[index]:
            raise NvmlError("GPU is lost")
        return self.cards[index]

    def nvmlDeviceGetMaxClockInfo(self, handle: dict[str, Any], kind: int) -> Any:
        assert kind == self.NVML_CLOCK_MEM
        return self._answer(handle, "MaxClockInfo")

    def nvmlDeviceGetClockInfo(self, handle: dict[str, Any], kind: int) -> Any:
        return self._answer(handle, "ClockInfo")[kind]

    def nvmlDeviceGetTemperature(self, handle: dict[str, Any], sensor: int) -> Any:
        assert sensor == self.NVML_TEMPERATURE_GPU
        return self._answer(handle, "Temperature")

    def nvmlDeviceGetTemperatureV(self, handle: dict[str, Any], sensor: int) -> Any:
        raise NotSupported("a driver from before this question")

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
