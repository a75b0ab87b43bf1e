"""Find damaged files of ggbench, and processes that it left, for `ggbench doctor`; nothing is changed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ggbench import paths
from ggbench.decisions.doctor.checkup import Finding, advice, problem
from ggbench.engines.llama_server.config import SERVED_AT
from ggbench.errors import UsageError
from ggbench.machine.bandwidth import BandwidthCache
from ggbench.models.added_places import are_places_damaged
from ggbench.models.catalog import load_catalog
from ggbench.models.local_files import HeaderIndexFile
from ggbench.units import format_bytes

_CHOICES = dict[str, str | dict[str, dict[str, str]]]
"""The TUI's choices, whose own type is not imported here."""


def damaged_files() -> Iterator[Finding]:
    """Yield, with whole paths, what cannot be read of the catalogs, the user's lists and the caches."""
    if any(file.exists() for file in (paths.user_models_file(), paths.updated_models_file())):
        try:
            load_catalog()
        except UsageError as error:
            yield problem("catalog.damaged", error.message, error.hint)
    places = paths.added_places_file()
    if are_places_damaged():
        message = f"{places} is damaged, so none of the folders, files and servers that you added is listed"
        yield problem("places.damaged", message, "repair it, or add them again: it is then kept under another name")
    for kept in sorted(places.parent.glob(f"{places.stem}.broken*")):
        message = f"{kept} is a damaged list of folders, files and servers that you had added"
        yield advice("places.set_aside", message, "add again what is missing, then delete it")
    caches: tuple[tuple[Path, Any], ...] = (
        (paths.machine_cache_file(), BandwidthCache),
        (paths.header_index_file(), HeaderIndexFile),
        (paths.measure_choices_file(), _CHOICES),
    )
    for file, kind in caches:
        try:
            msgspec.json.decode(file.read_bytes(), type=kind)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, RecursionError):
            yield advice("cache.damaged", f"{file} is damaged and not used", "delete it; ggbench writes it again")


def left_processes() -> Iterator[Finding]:
    """Yield workers and llama-servers of this user whose ggbench is gone."""
    import psutil

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            is_worker = any(word.startswith("ggbench.engines.") for word in words)
            is_server = " ".join(SERVED_AT) in " ".join(words)
            if not (is_worker or is_server) or process.uids().real != os.getuid():
                continue
            parent = process.parent()
            is_adopted = parent is None or parent.pid == 1 or parent.name() == "systemd"
            if is_adopted and not (parent and "ggbench" in " ".join(parent.cmdline())):  # it may be a container's first
                name, used = "a llama-server" if is_server else "a worker", format_bytes(process.memory_info().rss)
                message = f"{name} of a ggbench that is gone still runs (pid {process.pid}, {used})"
                yield problem("process.left", message, f"kill {process.pid}")
