"""Stored runs for the Results screen.

Several ggbench processes may share one store: runs may be deleted, finished or added between two reads, and an
unreadable one must not hide the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ggbench.runs.store.database import Store
from ggbench.show.listed_runs import ListedRun, named_runs
from ggbench.text import sanitize
from ggbench.units import counted

_NAMED_RUNS = 8
"""Maximum number of runs listed by number in a question."""


MOST_LISTED = 5000
"""Maximum number of runs to list: the newest."""
_FIRST_READ = 500
"""Number of the newest runs to show before the others have been read."""


def read_runs(store: Store, known: Mapping[int, ListedRun]) -> Iterator[tuple[ListedRun, ...]]:
    """Yield the newest runs, newest first, then all that are listed, reusing those of `known` that did not change.

    Raises StoreError.
    """
    runs = []
    for run_id, state, n_samples in store.run_states(MOST_LISTED):
        before = known.get(run_id)
        if before is not None and (before.stored.state, before.stored.n_samples) == (state, n_samples):
            runs.append(before)
        else:
            runs += [ListedRun.of(stored, store) for stored in store.load_runs((run_id,))]
        if len(runs) == _FIRST_READ > len(known):
            yield _searchable(runs)
    yield _searchable(runs)


def _searchable(runs: Sequence[ListedRun]) -> tuple[ListedRun, ...]:
    """Return the runs with their models named and the text to search prepared, which takes longer than a key press."""
    named = named_runs(runs)
    for run in named:
        run.searched  # noqa: B018 - computed once
    return named


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
