"""What a llama-server's log says of its load: buffers, sizes, build, and why it failed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from ggbench.engines.events import Allocated, MemoryKind
from ggbench.engines.http.program import NAME, Build
from ggbench.engines.llama.logs import parse_allocations
from ggbench.text import shorten

_LISTENING = re.compile(r"listening on http://[^:]+:(\d+)|is listening.*\bport: (\d+)")
_NO_DRAFTS = re.compile(
    r"failed to initialize speculative decoding context: .+|speculative decoding not supported by this context"
)
_LOADS_DRAFT = re.compile(r"loading draft model '|creating MTP draft context")
"""Before the lines of what drafts: `common_speculative_init_result` in llama.cpp's speculative.cpp."""
_CONTEXT_SIZE = re.compile(r"^llama_context: (?P<name>n_ctx|n_batch|n_ubatch) += (?P<n>\d+)$")
_SYSTEM_INFO = re.compile(r"system_info: .*? \| (?P<features>.+)$")
_DEVICE = re.compile(
    r"^(?:cmn +common_param: +)?- (?P<name>\S+?)(?P<index>\d*) *: (?P<about>.+) \(\d+ MiB, \d+ MiB free\)"
)
_FAULT = re.compile(
    r"error loading model: .+|error while loading shared libraries: .+|error while handling argument .+|error: .+"
    r"|cannot run .+"
    r"|couldn't bind .+|GGML_ASSERT.+|.*\w+Error: .+"
)


def port_of(line: str) -> int | None:
    match = _LISTENING.search(line)
    return int(match[1] or match[2]) if match else None


def faults(log: Sequence[str]) -> list[str]:
    return [match[0] for line in log if (match := _FAULT.search(line))]


def no_drafts(log: Sequence[str]) -> str:
    """Return why the server does not draft; empty if it does."""
    return next((shorten(match[0], 200) for line in log if (match := _NO_DRAFTS.search(line))), "")


def allocated(log: Sequence[str]) -> Allocated:
    places = _places(log)
    first = next((number for number, line in enumerate(log) if _LOADS_DRAFT.search(line)), len(log))
    draft = parse_allocations(log[first:], places)
    return replace(parse_allocations(log[:first], places), draft_buffers=draft.buffers)


def context_sizes(log: Sequence[str]) -> dict[str, int]:
    """Return `n_ctx`, `n_batch` and `n_ubatch` as llama.cpp rounded them; without those that the log lacks."""
    return {match["name"]: int(match["n"]) for line in log if (match := _CONTEXT_SIZE.search(line))}


def versions(log: Sequence[str], build: Build) -> dict[str, str]:
    """Return the versions for `Ready`, from the build and the log of the load."""
    info = next((match["features"] for line in log if (match := _SYSTEM_INFO.search(line))), "")
    devices = [name.rstrip("0123456789") for name, kind in _places(log).items() if kind is MemoryKind.GPU]
    return {
        "llama_cpp": build.version.partition(" (")[0],
        "llama_cpp_commit": build.commit,
        "build_flags": build.built_with,
        "system_info": shorten(info, 2000),
        "backends": " ".join(shorten(name, 40) for name in dict.fromkeys(["CPU", *devices])),
        "server": " ".join(filter(None, (NAME, build.version))),
    }


def _places(log: Sequence[str]) -> dict[str, MemoryKind]:
    """Return the kind of memory of each device that the log lists."""
    found: dict[str, MemoryKind] = {}
    for match in filter(None, map(_DEVICE.search, log)):
        if match["name"] in ("CPU", "BLAS"):
            continue
        is_remote, device = match["name"] == "RPC", match["name"] + match["index"]
        found[device] = MemoryKind.REMOTE if is_remote else MemoryKind.GPU
        if is_remote:  # its buffers are named with the server's address
            found[f"{device}[{match['about']}]"] = MemoryKind.REMOTE
        found[f"{match['name']}_Host"] = MemoryKind.HOST
    return found
