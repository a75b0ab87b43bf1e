"""What torch and Transformers raise, as one line that says at which stage and whether memory ran out."""

from __future__ import annotations

import re

from ggbench.engines.contract import Stage
from ggbench.engines.llama.logs import is_out_of_memory
from ggbench.text import plain, shorten

_WANTED = re.compile(r"tried to allocate (?P<count>[\d.]+) ?(?P<unit>bytes|[KMG]iB)", re.I)
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_CPU_ALLOCATOR = re.compile(r"can't allocate memory|not enough memory|cannot allocate memory", re.I)
"""Of c10's `alloc_cpu.cpp`; torch has no class of its own for it."""
_UNCLEAR = re.compile(r"could not create a (?:primitive|memory)|issues during automatic conversion of the weights")
"""What oneDNN says where its own buffers do not fit, and Transformers where bitsandbytes' do not; both may have other
causes, so it counts only under a limit.
"""
_LONGEST = 300


class TransformersRefused(Exception):
    """A request that cannot be carried out; the worker goes on."""

    def __init__(self, stage: Stage, message: str, *, out_of_memory: bool = False) -> None:
        super().__init__(message)
        self.stage = stage
        self.out_of_memory = out_of_memory


def is_memory_error(error: BaseException, *, is_limited: bool) -> bool:
    """Return whether an exception of torch means that memory ran out."""
    text = str(error)
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or is_out_of_memory(text)
        or bool(_CPU_ALLOCATOR.search(text))
        or (is_limited and bool(_UNCLEAR.search(text)))
    )


def wanted_bytes(error: BaseException) -> int | None:
    """Return how large the allocation was that failed; None where the exception does not say."""
    match = _WANTED.search(str(error))
    return None if match is None else round(float(match["count"]) * _UNITS[match["unit"]])


def one_line(error: BaseException) -> str:
    """Return the first line of an exception that says something, printable and cut."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else ""
    if text.startswith("[enforce fail"):  # c10's own place in its source comes before what it says
        text = text.partition("] ")[2].lstrip(". ") or text
    return shorten(plain(text or type(error).__name__), _LONGEST)
