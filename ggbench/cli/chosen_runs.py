"""Stored runs as a command line names them: by their numbers, or all of one model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggbench.errors import UsageError
from ggbench.text import plain

if TYPE_CHECKING:
    from ggbench.runs.store.database import Store
    from ggbench.runs.store.runs import StoredRun


def chosen_runs(store: Store, run_ids: tuple[int, ...], model: str | None) -> list[StoredRun]:
    """Return the runs of these numbers, each once, or those of a model, oldest first.

    Raises UsageError unless exactly one of the two is given, or where no run is of the model; UnknownName and
    StoreError for a number.
    """
    if bool(run_ids) == bool(model):
        raise UsageError(
            "RUN and --model exclude each other" if run_ids else "no run was given",
            "give numbers of `ggbench results`, or --model MODEL",
        )
    if run_ids:
        return [store.load_run(run_id) for run_id in dict.fromkeys(run_ids)]
    runs = list(store.list_runs(model=model))[::-1]
    if not runs:
        names = sorted({stored.subject.model for stored in store.list_runs()})
        known = f"stored are runs of {', '.join(map(plain, names))}" if names else "measure it first: ggbench decode"
        raise UsageError(f"no run of {plain(model or '')!r} is stored", known)
    return runs
