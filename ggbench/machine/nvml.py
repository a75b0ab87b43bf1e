"""NVML, NVIDIA's library that tells about GPUs, asked one fact at a time.

It leaves out different facts on different chips and drivers, so a refusal costs that one fact and nothing else.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any


class Nvml:
    """NVML while it is open. Handles and answers are pynvml's own."""

    def __init__(self, pynvml: ModuleType) -> None:
        self._pynvml = pynvml

    def query(self, question: str, *args: object) -> Any:  # noqa: ANN401 - pynvml has no types
        """The answer of that function of pynvml, or None where NVML or this driver has none."""
        function = getattr(self._pynvml, question, None)  # pynvml drops what NVIDIA retires
        try:
            return None if function is None else function(*args)
        except (self._pynvml.NVMLError, UnicodeDecodeError):
            # pynvml decodes names as UTF-8, which those under WSL are not (cuda-python's pull request 2118).
            return None

    def devices(self) -> Iterator[tuple[int, Any]]:
        """Index and handle of every GPU in NVML's order, that of the PCI bus; one that is lost is left out."""
        for index in range(self.query("nvmlDeviceGetCount") or 0):
            handle = self.query("nvmlDeviceGetHandleByIndex", index)
            if handle is not None:
                yield index, handle

    def constant(self, name: str) -> int:
        """One of pynvml's numbers."""
        return int(getattr(self._pynvml, name))

    def close(self) -> None:
        """Shut NVML down; sessions are counted, so others stay open."""
        self.query("nvmlShutdown")


def open_nvml() -> Nvml | None:
    """NVML, to be closed by the caller; None where there is no driver or no NVML."""
    try:
        with warnings.catch_warnings():
            # Where the retired distribution `pynvml` is installed too, it warns of itself at this import.
            warnings.simplefilter("ignore", FutureWarning)
            import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return Nvml(pynvml)
