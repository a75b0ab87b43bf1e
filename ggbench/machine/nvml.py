"""Queries to NVML, NVIDIA's management library, one value at a time.

Chips and drivers support different queries, so a failed query loses only its own value.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any


class Nvml:
    """An NVML session. Handles and results are pynvml's own."""

    def __init__(self, pynvml: ModuleType) -> None:
        self._pynvml = pynvml

    def query(self, name: str, *args: object) -> Any:  # noqa: ANN401 - pynvml has no types
        """Call a pynvml function; None where NVML or this driver does not support it."""
        function = getattr(self._pynvml, name, None)  # pynvml removes functions that NVIDIA retires
        try:
            return None if function is None else function(*args)
        except (self._pynvml.NVMLError, UnicodeDecodeError):
            # pynvml decodes names as UTF-8, but under WSL they may not be (cuda-python pull request 2118).
            return None

    def devices(self) -> Iterator[tuple[int, Any]]:
        """Yield index and handle of every GPU in NVML's order, the order of the PCI bus; lost GPUs are skipped."""
        for index in range(self.query("nvmlDeviceGetCount") or 0):
            handle = self.query("nvmlDeviceGetHandleByIndex", index)
            if handle is not None:
                yield index, handle

    def constant(self, name: str) -> int:
        """Return a constant of pynvml."""
        return int(getattr(self._pynvml, name))

    def close(self) -> None:
        """Shut down this session; NVML counts sessions, so others stay open."""
        self.query("nvmlShutdown")


def open_nvml() -> Nvml | None:
    """Open NVML, to be closed by the caller; None where there is no driver or no NVML."""
    try:
        with warnings.catch_warnings():
            # The retired distribution `pynvml` emits a FutureWarning on import where it is installed too.
            warnings.simplefilter("ignore", FutureWarning)
            import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return Nvml(pynvml)
