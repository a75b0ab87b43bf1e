"""Runs that repeat one another: of one file, loaded and measured alike, on one machine with the same versions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from ggbench.engines.endings import Outcome
from ggbench.errors import StoreError
from ggbench.runs.run import Run
from ggbench.runs.store.database import Store
from ggbench.runs.stored import listed_run

_NEWEST = 12
"""Runs of each setting: a machine of last year need not be as noisy today."""

Repeats = tuple[tuple[Run, ...], ...]
"""Groups of two runs or more that differ in nothing but when they ran."""


def setting_of(run: Run) -> str:
    """Return a key that is equal for runs that repeat one another."""
    head, subject = run.head, run.subject
    file = subject.header_sha256 or subject.file, subject.file_bytes, subject.quant
    environment = head.environment
    versions = environment and (
        environment.llama_cpp,
        environment.llama_cpp_python,
        environment.transformers,
        environment.server,
        environment.system_info,
    )
    return repr((machine_of(run), head.kind, file, head.setup, head.settings, versions))


def machine_of(run: Run) -> str:
    """Return a key that is equal for runs of one machine and one engine."""
    environment = run.head.environment
    machine = environment and (environment.cpu, environment.n_cores, tuple(gpu.name for gpu in environment.gpus))
    return repr((run.head.setup.engine, machine))


def stored_repeats(store: Store) -> Repeats:
    """Return the completed runs of a store that were repeated. Raises StoreError where it cannot be read.

    Imported runs are left out: what else differed between them is unknown.
    """
    runs = []
    for stored in store.list_runs(state=Outcome.COMPLETED):
        if not stored.is_imported:
            with contextlib.suppress(StoreError):  # written by another ggbench
                runs.append(listed_run(stored))
    return repeats_among(runs)


def repeats_among(runs: Iterable[Run]) -> Repeats:
    """Return the groups among runs, which come newest first; of each setting at most the newest twelve."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(setting_of(run), []).append(run)
    return tuple(tuple(group[:_NEWEST]) for group in groups.values() if len(group) > 1)
