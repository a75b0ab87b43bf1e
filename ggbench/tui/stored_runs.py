"""Stored runs for the Results screen.

Several ggbench processes may share one store: runs may be deleted, finished or added between two reads, and an
unreadable one must not hide the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ggbench.errors import UsageError
from ggbench.runs.experiment import Job, experiment_of
from ggbench.runs.run import RunHead
from ggbench.runs.store.database import Store
from ggbench.show.listed_runs import ListedRun, SavedRun, named_runs
from ggbench.show.names import quant_name
from ggbench.text import sanitize
from ggbench.units import counted

if TYPE_CHECKING:
    from ggbench.tui.host import Services

_NAMED_RUNS = 8
"""Maximum number of runs listed by number in a question."""
MOST_LISTED = 1000
"""Maximum number of runs to list: the newest."""


def read_runs(store: Store, known: Mapping[int, ListedRun]) -> tuple[ListedRun, ...]:
    """Return the newest runs, newest first, reusing those of `known` that did not change.

    Their models are named and the text to search is prepared, which takes longer than a key press. Raises StoreError.
    """
    runs = []
    for run_id, state, n_samples in store.run_states(MOST_LISTED):
        before = known.get(run_id)
        if before is not None and (before.stored.state, before.stored.n_samples) == (state, n_samples):
            runs.append(before)
        else:
            runs += [ListedRun.of(stored, store) for stored in store.load_runs((run_id,))]
    named = named_runs(runs)
    for run in named:
        run.searched  # noqa: B018 - computed once
    return named


def saved_runs(store: Store, run_ids: Iterable[int]) -> list[SavedRun]:
    """Return runs with what was recorded of them. Raises StoreError."""
    return [SavedRun.load(store, run_id) for run_id in run_ids]


def by_model(runs: Iterable[ListedRun]) -> list[ListedRun]:
    """Return the runs of each model together; the models are in the order of their first runs."""
    models: dict[str, list[ListedRun]] = {}
    for run in runs:
        models.setdefault(run.model, []).append(run)
    return [run for group in models.values() for run in group]


def describe_runs(runs: Sequence[ListedRun]) -> str:
    """Return the runs' names for a question, with numbers, as a filter may hide some."""
    if len(runs) == 1:
        return f"run {runs[0].run_id} ({runs[0].model} {sanitize(runs[0].subject.quant)})"
    numbers = ", ".join(str(run.run_id) for run in runs[:_NAMED_RUNS])
    return f"{counted(len(runs), 'run')} ({numbers}{', …' if len(runs) > _NAMED_RUNS else ''})"


def job_again(services: Services, head: RunHead) -> Job:
    """Return the job of a stored run, of its own file if that is still here. Raises like `resolve`, and UsageError."""
    subject = head.subject
    if Path(subject.file).is_file():
        (found,) = services.resolve(subject.file)
        found = replace(found, model=subject.model, quant=subject.quant, provenance=subject.source)
    else:
        (found,) = services.resolve(subject.model, [subject.quant])
    if found.download_bytes:
        raise UsageError(f"{quant_name(subject)} is not on this disk", "press p on it in the Library")
    return Job(experiment_of(head.kind), found, head.setup, head.settings)
