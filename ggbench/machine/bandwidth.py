"""The read bandwidth of main memory, measured with libc and numpy once per machine and cached.

Decoding a token reads every weight once, so it is bound by pure read bandwidth. The probe must be at least as fast as
llama.cpp's own loops, or a measured B would beat its limit; so it reads from huge pages where available, keeps two
streams per thread, and takes the best of several kernels, thread counts and time windows.
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import itertools
import mmap
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from typing import TYPE_CHECKING

import msgspec

from ggbench import paths
from ggbench.errors import DoesNotFit
from ggbench.files import replace_file
from ggbench.machine.host import Cpu, Ram, describe_cpu, describe_ram
from ggbench.record import Record
from ggbench.stats.decode_timing import Bandwidth
from ggbench.units import GIB, MIB, counted

_ASSUMED_CACHE_BYTES = 64 * MIB
_SECTION = "bandwidth"
_BUSY = ", on a busy machine"
_TOO_LOW = ", so maybe too low"
BandwidthCache = dict[str, dict[str, Bandwidth]]
"""The stored form: bandwidths by machine, in the section `_SECTION`."""


def cached_bandwidth(threads: int) -> Bandwidth:
    """Return the cached bandwidth for this machine and thread count, or measure and cache it.

    A result from a busy machine is measured again next time, and is replaced only by a higher one or one from an idle
    machine. An unreadable cache file counts as empty, write errors are ignored. Raises DoesNotFit.
    """
    cpu, ram = describe_cpu(), describe_ram()
    key = _machine_key(cpu, ram, threads)
    known = _read().get(key)
    if known is not None and not is_from_busy_machine(known):
        return known
    rate = _probe(threads, cpu, ram)
    if known is not None and rate.busy and known.bytes_per_s > rate.bytes_per_s:
        return known
    source = (
        f"measured {datetime.date.today().isoformat()} with {counted(rate.threads, 'thread')} ({rate.kernel})"
    )
    found = Bandwidth(rate.bytes_per_s, source + (_BUSY + _TOO_LOW if rate.busy else ""))
    with contextlib.suppress(OSError):
        document = {_SECTION: {**_read(), key: found}}
        replace_file(paths.machine_cache_file(), msgspec.json.format(msgspec.json.encode(document), indent=2))
    return found


def known_bandwidth(threads: int) -> Bandwidth | None:
    return _read().get(_machine_key(describe_cpu(), describe_ram(), threads))


def is_from_busy_machine(bandwidth: Bandwidth) -> bool:
    """Return whether a cached bandwidth was measured while other programs ran, so that it may be too low."""
    return _BUSY in bandwidth.source


def _probe(threads: int, cpu: Cpu, ram: Ram) -> ReadRate:
    """Measure the highest rate at which up to `threads` threads read main memory; takes about 1.5 s.

    The buffer is 1 GiB, or four times the last-level cache if that is larger, which leaves about 2 % of lines cached
    under random replacement. It is smaller if memory is short or slow to allocate, and never more than a quarter of the
    available memory.
    """
    cache_bytes = cpu.last_level_cache_bytes or _ASSUMED_CACHE_BYTES
    wanted = min(ram.available_bytes // 4, max(GIB, 4 * cache_bytes))
    try:
        return probe_reads(threads, buffer_bytes=wanted, min_bytes=min(wanted, max(256 * MIB, 2 * cache_bytes)))
    except (OSError, MemoryError) as error:
        raise DoesNotFit(
            "not enough free memory to measure its bandwidth",
            "close other programs, or give it with --bandwidth",
        ) from error


def _machine_key(cpu: Cpu, ram: Ram, threads: int) -> str:
    cache_mib = (cpu.last_level_cache_bytes or 0) // MIB
    return f"{cpu.name}, {cpu.n_cores} cores, {cache_mib} MiB cache, {ram.total_bytes / GIB:.0f} GiB, {threads} threads"


def _read() -> dict[str, Bandwidth]:
    try:
        entries = msgspec.json.decode(paths.machine_cache_file().read_bytes(), type=BandwidthCache).get(
            _SECTION, {}
        )
    except (OSError, ValueError, RecursionError):
        return {}
    return {
        key: entry for key, entry in entries.items() if entry.bytes_per_s > 0 and entry.source.isprintable()
    }


if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Chunk = npt.NDArray[np.uint64]
    Kernel = Callable[[Chunk], bool]
    """Reads a whole chunk with the GIL released; returns False if it stopped early."""

CHUNK_BYTES = 4 << 20
"""Bytes read per call without the GIL; large enough that the overhead of a call is negligible."""

_FILL = 0x5A
_FILL_WORD = int.from_bytes(bytes([_FILL]) * 8, "little")
_WINDOWS_S = (0.03, 0.005)
"""Durations of windows: long ones lose least at their ends; short ones fit between other programs' time slices."""
_MIN_CORE_SHARE = 0.9
_TOUCH_S = 0.4


class ReadRate(Record):
    bytes_per_s: float
    threads: int
    kernel: str
    busy: bool
    """Whether other programs kept the full set of threads off their cores in most windows: the rate may be too low."""


def probe_reads(threads: int, *, buffer_bytes: int, min_bytes: int, budget_s: float = 1.0) -> ReadRate:
    """Return the highest read rate that at most `threads` threads reached together in any window of some milliseconds.

    The buffer has `buffer_bytes`, or as much as could be touched within `_TOUCH_S` but at least `min_bytes`: the
    first touch of a page can take longer than a hundred reads if a hypervisor allocates lazily. Reading then takes
    about `budget_s` seconds, and every combination is tried at least once. Raises OSError where memory cannot be
    allocated.

    Other memory traffic lowers every window it overlaps; the best of some fifty windows is the least disturbed, so only
    continuous load lowers the result.
    """
    with ThreadPoolExecutor(threads) as pool, contextlib.ExitStack() as stack:
        ended = Event()
        stack.callback(
            ended.set
        )  # otherwise, after Ctrl-C, the pool would wait until its threads have touched everything
        wanted, minimum = (
            max(1, -(-n_bytes // (threads * CHUNK_BYTES))) for n_bytes in (buffer_bytes, min_bytes)
        )
        touch_until = time.perf_counter() + _TOUCH_S
        # each thread touches its own region, so that its pages are on the thread's NUMA node
        regions = list(pool.map(lambda _: _touch_region(wanted, minimum, touch_until, ended), range(threads)))
        cursors = [0] * threads
        # a few cores may saturate memory, and more only interfere
        counts = sorted({threads, -(-threads * 3 // 4), -(-threads // 2)}, reverse=True)
        windows: list[tuple[float, bool, int, str]] = []
        end = time.perf_counter() + budget_s
        while not windows or time.perf_counter() < end:
            for n_readers, name, window_s in itertools.product(counts, _KERNELS, _WINDOWS_S):
                found = _read_together(pool, n_readers, _KERNELS[name], regions, cursors, window_s)
                windows.append((*found, n_readers, name))
        best, _, n_readers, name = max(windows)
        starved = [is_starved for _, is_starved, n, _ in windows if n == threads]
        return ReadRate(best, n_readers, name, busy=sum(starved) * 2 > len(starved))


def _touch_region(wanted_chunks: int, min_chunks: int, end: float, ended: Event) -> list[Chunk]:
    """Return chunks of new memory, all bytes equal; each array keeps the mapping alive."""
    import numpy as np

    region = _new_memory(wanted_chunks * CHUNK_BYTES)
    chunks: list[Chunk] = []
    for at in range(0, len(region), CHUNK_BYTES):
        if ended.is_set() or (len(chunks) >= min_chunks and time.perf_counter() > end):
            break
        words = np.frombuffer(region, np.uint64, CHUNK_BYTES // 8, at)
        ctypes.memset(words.ctypes.data, _FILL, CHUNK_BYTES)
        chunks.append(words)
    return chunks


def _new_memory(n_bytes: int) -> mmap.mmap:
    """Return memory on huge pages if available: 4 KiB pages cost about a tenth of the rate."""
    if sys.platform == "linux":
        # Python's default, a shared mapping, gets no huge pages.
        region = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(OSError):  # a kernel built without them
            region.madvise(mmap.MADV_HUGEPAGE)
    else:
        region = mmap.mmap(-1, n_bytes)
    return region


def _read_together(
    pool: ThreadPoolExecutor,
    n_readers: int,
    kernel: Kernel,
    regions: Sequence[Sequence[Chunk]],
    cursors: list[int],
    window_s: float,
) -> tuple[float, bool]:
    """Run all readers for one window; each continues in its own regions where it stopped.

    Return bytes/s from the first reader's start to the last one's end, so a reader without a core lowers it, and
    whether the readers had their cores for less than nine tenths of that time.
    """
    barrier = Barrier(n_readers)

    def read(reader: int) -> tuple[float, float, float, int]:
        chunks = [chunk for region in regions[reader::n_readers] for chunk in region]
        cursor = cursors[reader]
        n_bytes = 0
        barrier.wait()
        on_core = time.thread_time()
        start = stop = time.perf_counter()
        while stop - start < window_s:
            chunk = chunks[cursor % len(chunks)]
            if not kernel(chunk):
                raise RuntimeError("a read stopped before the end of its chunk")
            cursor += 1
            n_bytes += CHUNK_BYTES
            stop = time.perf_counter()
        cursors[reader] = cursor
        return start, stop, time.thread_time() - on_core, n_bytes

    try:
        starts, stops, on_core, n_bytes = zip(*pool.map(read, range(n_readers)), strict=True)
    except BaseException:
        barrier.abort()  # otherwise a Ctrl-C before the last reader is submitted leaves the others waiting for it
        raise
    elapsed = max(stops) - min(starts)
    return sum(n_bytes) / elapsed, sum(on_core) < _MIN_CORE_SHARE * elapsed * n_readers


def _compare_halves(chunk: Chunk) -> bool:
    """Read two streams at once, which keeps more reads in flight than one."""
    half = CHUNK_BYTES // 2
    return bool(_memcmp(chunk.ctypes.data, chunk.ctypes.data + half, half) == 0)


def _search_absent_byte(chunk: Chunk) -> bool:
    return _memchr(chunk.ctypes.data, 0, CHUNK_BYTES) is None


def _or_all_words(chunk: Chunk) -> bool:
    import numpy as np

    return int(np.bitwise_or.reduce(chunk)) == _FILL_WORD


_libc = ctypes.CDLL(None)
_memcmp = _libc.memcmp
_memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
_memcmp.restype = ctypes.c_int
_memchr = _libc.memchr
_memchr.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
_memchr.restype = ctypes.c_void_p

_KERNELS: dict[str, Kernel] = {"memcmp": _compare_halves, "memchr": _search_absent_byte, "numpy": _or_all_words}
