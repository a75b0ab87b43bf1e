"""Find in what a program printed why it failed: too little memory, or the cause of a crash."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ggbench.text import sanitize
from ggbench.units import MIB

_OUT_OF_MEMORY = re.compile(
    r"out of memory|insufficient memory|failed to allocate|cannot allocate memory|unable to allocate|bad_alloc"
    r"|OutOf(?:Device|Host)Memory|Thread creation failed|mem_buffer != NULL",
    re.I,
)
_TOO_LARGE = re.compile(
    r"pre-allocated tensor \((?P<tensor>\S+)\) in a buffer \((?P<device>\S+)\) that cannot run the operation \(NONE\)"
)
"""A device refuses a tensor, as Vulkan one above the driver's maxStorageBufferRange; llama.cpp then aborts."""
_GOES_ON = re.compile(r"pinned memory|failed to mlock|failed to allocate graph, reserving")
"""Failures after which llama.cpp continues, with pageable memory or by reserving again."""
_WANTED = re.compile(r"buffer of size (?P<bytes>\d+)$|attempted to allocate\s+(?P<mib>[\d.]+) MB\)")
_CAUSE = re.compile(
    r"\b(?:CUDA|ROCm|MUSA|SYCL|Vulkan) error: |GGML_ASSERT|GGML_ABORT|terminate called|what\(\):|^[\w.]+Error: "
)
_RETRIES = "retrying without pipeline parallelism"


def out_of_memory_line(lines: Iterable[str]) -> str:
    """Return the first line that reports too little memory without recovery; empty if none."""
    blame = ""
    for line in lines:
        if _RETRIES in line:
            blame = ""
        elif not blame and (found := _TOO_LARGE.search(line)):
            blame = f"{found['tensor']} is larger than {found['device']} lets one tensor be"
        elif not blame and is_out_of_memory(line):
            blame = line.strip()
    return blame


def is_out_of_memory(line: str) -> bool:
    """Return whether the line reports too little memory, so that llama.cpp cannot continue."""
    return bool(_OUT_OF_MEMORY.search(line)) and not _GOES_ON.search(line)


def wanted_bytes(line: str) -> int | None:
    """Return the size of the failed allocation in a line; None if not stated."""
    match = _WANTED.search(line)
    if match is None:
        return None
    return int(match["bytes"]) if match["bytes"] else round(float(match["mib"]) * MIB)


def crash_cause(last_lines: Iterable[str]) -> str:
    """Return the line that gives the cause of a crash, or the last line, printable; empty without lines.

    After the cause llama.cpp prints the source location, and often a backtrace.
    """
    said = [sanitize(line).strip() for line in last_lines if line.strip()]
    return next((line for line in said if _CAUSE.search(line)), said[-1] if said else "")
