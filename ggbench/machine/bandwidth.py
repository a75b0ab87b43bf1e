"""The read bandwidth of main memory, measured once per machine and cached.

A measurement takes over a second on all cores, so it is cached under traits of the machine that survive a reboot: a
home folder may be shared between several machines.
"""

from __future__ import annotations

import contextlib
import datetime
from pathlib import Path
from typing import Any

import msgspec

from ggbench import paths
from ggbench.errors import DoesNotFit
from ggbench.files import replace_file
from ggbench.machine.cpu import Cpu, describe_cpu
from ggbench.machine.memory import Ram, describe_ram
from ggbench.machine.read_probe import ReadRate, probe_reads
from ggbench.stats.decode_timing import Bandwidth
from ggbench.units import GIB, MIB

_ASSUMED_CACHE_BYTES = 64 * MIB
_SECTION = "bandwidth"
_BUSY = ", on a busy machine"


def cached_bandwidth(threads: int, *, file: Path | None = None) -> Bandwidth:
    """Return the cached bandwidth for this machine and thread count, or measure and cache it.

    A result from a busy machine is measured again next time, and is replaced only by a higher one or one from an idle
    machine. An unreadable cache file counts as empty, write errors are ignored. `file` defaults to
    `paths.machine_cache_file()`. Raises DoesNotFit.
    """
    file = paths.machine_cache_file() if file is None else file
    cpu, ram = describe_cpu(), describe_ram()
    key = _machine_key(cpu, ram, threads)
    known = _read(file).get(key)
    if known is not None and not known.busy:
        return Bandwidth(known.bytes_per_s, known.source)
    rate = _probe(threads, cpu, ram)
    entry = _Entry(rate.bytes_per_s, _source(rate), rate.busy)
    if known is not None and rate.busy and known.bytes_per_s > rate.bytes_per_s:
        entry = known
    else:
        with contextlib.suppress(OSError):
            _write(file, key, entry)
    return Bandwidth(entry.bytes_per_s, entry.source)


def known_bandwidth(threads: int) -> Bandwidth | None:
    """Return the bandwidth as `cached_bandwidth` has cached it; None where it has not been measured."""
    known = _read(paths.machine_cache_file()).get(_machine_key(describe_cpu(), describe_ram(), threads))
    return None if known is None else Bandwidth(known.bytes_per_s, known.source)


def is_from_busy_machine(bandwidth: Bandwidth) -> bool:
    """Return whether a cached bandwidth was taken while other programs ran, and so may be too low."""
    return bandwidth.source.endswith(_BUSY)


class _Entry(msgspec.Struct, frozen=True):
    bytes_per_s: float
    source: str
    busy: bool


def _probe(threads: int, cpu: Cpu, ram: Ram) -> ReadRate:
    """Measure the highest rate at which up to `threads` threads read main memory; takes about 1.5 s.

    The buffer is 1 GiB, or four times the last-level cache if that is larger, which leaves about 2 % of lines cached
    under random replacement. It is smaller where memory is short or its pages are slow to allocate, and never more than
    a quarter of the available memory.
    """
    cache_bytes = cpu.last_level_cache_bytes or _ASSUMED_CACHE_BYTES
    wanted = min(ram.available_bytes // 4, max(GIB, 4 * cache_bytes))
    try:
        return probe_reads(threads, buffer_bytes=wanted, min_bytes=min(wanted, max(256 * MIB, 2 * cache_bytes)))
    except (OSError, MemoryError) as error:
        raise DoesNotFit(
            "not enough free memory to measure its bandwidth",
            "close other programs, or give the figure with --bandwidth",
        ) from error


def _source(rate: ReadRate) -> str:
    threads = "1 thread" if rate.threads == 1 else f"{rate.threads} threads"
    busy = _BUSY if rate.busy else ""
    return f"measured {datetime.date.today().isoformat()} with {threads} ({rate.kernel}){busy}"


def _machine_key(cpu: Cpu, ram: Ram, threads: int) -> str:
    cache_mib = (cpu.last_level_cache_bytes or 0) // MIB
    return f"{cpu.name}, {cpu.n_cores} cores, {cache_mib} MiB cache, {ram.total_bytes / GIB:.0f} GiB, {threads} threads"


def _read(file: Path) -> dict[str, _Entry]:
    import msgspec

    try:
        entries = msgspec.convert(_read_document(file).get(_SECTION, {}), dict[str, _Entry])
    except msgspec.ValidationError:
        return {}
    return {key: entry for key, entry in entries.items() if entry.bytes_per_s > 0 and entry.source.isprintable()}


def _read_document(file: Path) -> dict[str, Any]:
    import msgspec

    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError, RecursionError):
        return {}


def _write(file: Path, key: str, entry: _Entry) -> None:
    """Add one entry atomically and keep the rest of the file, so that readers never see a partial file."""
    import msgspec

    document = {**_read_document(file), _SECTION: {**_read(file), key: entry}}
    replace_file(file, msgspec.json.format(msgspec.json.encode(document), indent=2))
