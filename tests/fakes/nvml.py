"""A stand-in for libnvidia-ml.so.1 under the real pynvml, which gives the answers that real cards gave.

nvidia-smi is a client of NVML, so what it printed is a recording of NVML's answers. Those in tests/data/nvml name their
sources. Two things they cannot give: memory to the byte, as nvidia-smi rounds it to MiB, and what it does not print.
Of that, the width of the bus is refused unless the recording has it from elsewhere; energy always is.
"""

# ruff: noqa: ANN401 - pynvml calls these functions with ctypes' values and places, which have no types

from functools import partial
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, parse

import pynvml
import pytest

Card = dict[str, Any]
"""What NVML answers of one GPU, by the question's name without `nvmlDeviceGet`; other questions are refused.

Text is bytes, a structure a dict of its fields, an answer for each kind of clock or sensor a dict of those, and a list
of programs a list of structures.
"""

_DONE = int(pynvml.NVML_SUCCESS)
_RECORDINGS = Path(__file__).parents[1] / "data/nvml"
_MIB = 1 << 20


class FakeNvml:
    """The functions of NVML that ggbench calls, over cards; an empty one is a GPU that is lost."""

    def __init__(self, cards: list[Card], *, driver: str = "", init_status: int = _DONE) -> None:
        self.cards = cards
        self.driver = driver
        self.init_status = init_status
        self.process_names: dict[int, bytes] = {}
        self.lacks: set[str] = set()
        """Functions that this driver's library does not have."""
        self.sessions = 0

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvmlDeviceGet") or name in self.lacks:
            raise AttributeError(name)
        return partial(self._answer, name.removeprefix("nvmlDeviceGet"))

    def nvmlInitWithFlags(self, flags: int) -> int:
        self.sessions += self.init_status == _DONE
        return self.init_status

    def nvmlShutdown(self) -> int:
        self.sessions -= 1
        return _DONE

    def nvmlSystemGetDriverVersion(self, text: Any, size: Any) -> int:
        text.value = self.driver.encode()
        return _DONE

    def nvmlSystemGetProcessName(self, pid: Any, text: Any, size: Any) -> int:
        text.value = self.process_names.get(pid.value, b"")
        return _DONE if pid.value in self.process_names else int(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlDeviceGetCount_v2(self, place: Any) -> int:
        place._obj.value = len(self.cards)
        return _DONE

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, place: Any) -> int:
        place._obj.card = self.cards[index.value]  # the handle that the questions bring back
        return _DONE if self.cards[index.value] else int(pynvml.NVML_ERROR_GPU_IS_LOST)

    def _answer(self, question: str, handle: Any, *places: Any) -> int:
        answer = handle.card.get(question)
        if answer is None:
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        if isinstance(answer, list):
            return _answer_list(answer, *places)
        if isinstance(answer, bytes):
            places[0].value = answer
        else:
            *kind, place = places
            _fill(place._obj, answer[kind[0].value] if kind else answer)
        return _DONE


def _answer_list(structures: list[Card], count: Any, places: Any) -> int:
    """NVML's way with lists: asked without room it says how much it takes."""
    count._obj.value = len(structures)
    for place, structure in zip(places or (), structures, strict=False):
        _fill(place, structure)
    return _DONE if places or not structures else int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)


def _fill(place: Any, answer: Any) -> None:
    for field, value in (answer if isinstance(answer, dict) else {"value": answer}).items():
        setattr(place, field, value)


def install(monkeypatch: pytest.MonkeyPatch, nvml: FakeNvml | None) -> None:
    """Puts it under pynvml; None is a machine without NVIDIA's driver, where pynvml finds no library."""

    def find_no_library(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(pynvml, "nvmlLib", nvml)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    monkeypatch.setattr(pynvml, "CDLL", find_no_library)


def replay(*names: str) -> FakeNvml:
    """The cards of these recordings in one machine, under the first one's driver."""
    logs = [parse(_RECORDINGS / f"{name}.xml").getroot() for name in names]
    driver = logs[0].findtext("driver_version", "")
    nvml = FakeNvml([_card(gpu) for log in logs for gpu in log.iter("gpu")], driver=driver)
    for process in (process for log in logs for process in log.iter("process_info")):
        nvml.process_names[int(process.findtext("pid", ""))] = process.findtext("process_name", "").encode()
    nvml.lacks = _missing_functions(driver)
    return nvml


def reason_bits(*names: str) -> int:
    """NVML's bits of reasons for low clocks by nvidia-smi's names, as `sw_power_cap`."""
    odd = {"display_clocks_setting": "DisplayClockSetting"}
    titles = (odd.get(name, name.title().replace("_", "")) for name in names)
    return sum(getattr(pynvml, f"nvmlClocksEventReason{title}") for title in titles)


def _missing_functions(driver: str) -> set[str]:
    """What that driver's library does not have.

    Sources: https://github.com/XuehaiPan/nvitop/pull/89 for the lists of programs; nvidia-smi's own change from
    throttle to event reasons; the first release of nvidia-ml-py that asks for the temperature in the later way, 12.570.
    """
    version = tuple(int(part) for part in driver.split(".")[:2])
    missing = set()
    if version < (510, 39) or version == (535, 98):
        missing |= {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3"}
    if version < (535,):
        missing.add("nvmlDeviceGetCurrentClocksEventReasons")
    if version < (570,):
        missing.add("nvmlDeviceGetTemperatureV")
    return missing


def _card(gpu: Element) -> Card:
    total, free = (_number(gpu, f"fb_memory_usage/{name}", _MIB) for name in ("total", "free"))
    temperature, sm_clock, memory_clock, highest_memory_clock = (
        _number(gpu, path)
        for path in ("temperature/gpu_temp", "clocks/sm_clock", "clocks/mem_clock", "max_clocks/mem_clock")
    )
    draws = ("gpu_power_readings/average_power_draw", "gpu_power_readings/power_draw", "power_readings/power_draw")
    reasons = [part for part in gpu.iter() if "_reason_" in part.tag]
    bits = reason_bits(*(part.tag.partition("_reason_")[2] for part in reasons if part.text == "Active"))
    compute, graphics = (_processes(gpu, letter) for letter in "CG")
    answers = {
        "Name": gpu.findtext("product_name", "").encode(),
        "UUID": gpu.findtext("uuid", "").encode() or None,
        "PciInfo_v3": {"busId": gpu.findtext("pci/pci_bus_id", "").encode()},
        # NVML's first version counts what the driver reserves as used, so that used and free make up the total.
        "MemoryInfo": None if total is None or free is None else {"total": total, "free": free, "used": total - free},
        "MemoryBusWidth": _number(gpu, "from_device_query/memory_bus_width"),
        "MaxClockInfo": highest_memory_clock and {pynvml.NVML_CLOCK_MEM: highest_memory_clock},
        "ClockInfo": sm_clock and {pynvml.NVML_CLOCK_SM: sm_clock, pynvml.NVML_CLOCK_MEM: memory_clock},
        "Temperature": temperature and {pynvml.NVML_TEMPERATURE_GPU: temperature},
        "TemperatureV": temperature and {"temperature": temperature},
        "PowerUsage": next((draw for path in draws if (draw := _number(gpu, path, 1000))), None),
        "CurrentClocksEventReasons": bits if reasons else None,
        "CurrentClocksThrottleReasons": bits if reasons else None,
        "ComputeRunningProcesses_v3": compute,
        "ComputeRunningProcesses_v2": compute,
        "GraphicsRunningProcesses_v3": graphics,
        "GraphicsRunningProcesses_v2": graphics,
    }
    return {question: answer for question, answer in answers.items() if answer is not None}


def _number(element: Element, path: str, scale: int = 1) -> int | None:
    text = element.findtext(path, "N/A")
    return None if text == "N/A" else round(float(text.partition(" ")[0].removesuffix("-bit")) * scale)


def _processes(gpu: Element, letter: str) -> list[Card] | None:
    group = gpu.find("processes")
    if group is None:
        return None
    chosen = [process for process in group if letter in process.findtext("type", "")]
    unknown = pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value
    used = [_number(process, "used_memory", _MIB) for process in chosen]
    return [
        {"pid": _number(process, "pid"), "usedGpuMemory": unknown if used_bytes is None else used_bytes}
        for process, used_bytes in zip(chosen, used, strict=True)
    ]
