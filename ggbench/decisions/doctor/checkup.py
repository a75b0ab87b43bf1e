"""Looks at this machine and at ggbench's own files, for `ggbench doctor`; nothing is measured, changed or requested."""

from __future__ import annotations

import contextlib
import os
import platform
import tempfile
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import msgspec

import ggbench
from ggbench import paths
from ggbench.engines.llama.build import LlamaBuild, describe_llama_build
from ggbench.errors import GgbenchError
from ggbench.hub.access import HubLogin, describe_login, hub_cache_folder
from ggbench.machine.bandwidth import is_from_busy_machine, known_bandwidth
from ggbench.machine.condition import (
    CpuState,
    DataFolder,
    GpuDriver,
    MemoryState,
    describe_cpu_state,
    describe_gpu_driver,
    describe_memory_state,
    describe_os,
    describe_place,
)
from ggbench.machine.host import default_threads
from ggbench.runs.store.health import StoreHealth, inspect_store
from ggbench.stats.decode_timing import Bandwidth


class Calibration(msgspec.Struct, frozen=True):
    """What was measured of this machine once, for forecasts and limits."""

    bandwidth: Bandwidth | None
    """Of main memory; None before the first run."""
    is_busy: bool = False
    """Whether it was taken on a busy machine, and so is too low."""
    shares: str | None = None
    """What models reach of the bandwidth here; None before two of them ran."""


class Checkup(msgspec.Struct, frozen=True):
    """All that `ggbench doctor` looks at."""

    ggbench: str
    python: str
    os: str
    llama: LlamaBuild
    cpu: CpuState
    memory: MemoryState
    driver: GpuDriver
    places: tuple[DataFolder, ...]
    store: StoreHealth
    hub: HubLogin
    calibration: Calibration


def check_machine() -> Checkup:
    """Look at everything; what cannot be found out is None or says why."""
    store = inspect_store()
    return Checkup(
        ggbench=ggbench.__version__,
        python=platform.python_version(),
        os=describe_os(),
        llama=describe_llama_build(),
        cpu=describe_cpu_state(),
        memory=describe_memory_state(),
        driver=describe_gpu_driver(),
        places=_places(),
        store=store,
        hub=describe_login(),
        calibration=describe_calibration(store),
    )


def describe_calibration(store: StoreHealth) -> Calibration:
    """Return what was measured of this machine; the results are read only where their file is sound and up to date."""
    bandwidth = known_bandwidth(default_threads())
    is_busy = bandwidth is not None and is_from_busy_machine(bandwidth)
    is_readable = bool(store.n_runs) and not store.problem and store.version == store.newest_version
    return Calibration(bandwidth, is_busy, _shares() if is_readable and bandwidth is not None else None)


def _shares() -> str | None:
    from ggbench.decisions.known_speeds import shares_here
    from ggbench.runs.store.database import Store
    from ggbench.sizing.budget import machine_budget

    with contextlib.suppress(GgbenchError, PackageNotFoundError), Store.open() as opened:
        budget = machine_budget(
            n_gpu_layers=-1,
            main_gpu=None,
            threads=default_threads(),
            reserve_bytes=None,
            bandwidth=None,
            measures=False,
        )
        shares = shares_here(opened, budget)
        return None if shares is None else shares.source
    return None


def _places() -> tuple[DataFolder, ...]:
    """Each cache is a folder within `caches`, whoever made it."""
    caches, moved_by = paths.caches_dir(), "XDG_CACHE_HOME"
    inside = sorted(caches.iterdir()) if caches.is_dir() and os.access(caches, os.R_OK | os.X_OK) else []
    return (
        describe_place("results", "XDG_DATA_HOME", paths.results_file().parent),
        describe_place("caches", moved_by, caches),
        *(describe_place(each.name, moved_by, each, is_disposable=True) for each in inside if each.is_dir()),
        describe_place("Hugging Face's cache", "HF_HOME", hub_cache_folder(os.environ)),
        describe_place("temporary files", "TMPDIR", _temporary_folder(), counts=False),
    )


def _temporary_folder() -> Path:
    """Return the folder of temporary files, also where it is full, which Python then does not name."""
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:
        return Path(os.environ.get("TMPDIR", "/tmp"))
