"""Find the runs given on a command line: by number, or in a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ggbench.decisions.compare.comparison import columns_of
from ggbench.errors import UsageError
from ggbench.runs.run import Run
from ggbench.runs.stored import read_run
from ggbench.text import sanitize

if TYPE_CHECKING:
    from ggbench.decisions.compare.differences import Column
    from ggbench.runs.store.database import Store


def compared_runs(store: Store, named: Sequence[str]) -> list[Column]:
    """Return the columns to compare, each run once; repeats are averaged.

    Raises UsageError for names that are not runs, BadFile for a file without results, and StoreError.
    """
    found = [(name, run) for name in dict.fromkeys(named) for run in _named(store, name)]
    places = ["" if name.isdecimal() else name for name, _ in found]
    return columns_of([run for _, run in found], places)


def _named(store: Store, name: str) -> list[Run]:
    """Return the run of that number, or the runs in a file."""
    if name.isdecimal():
        return [read_run(store, store.load_run(int(name)))]
    from ggbench.formats.importing import read_runs

    path = Path(name)
    if not path.exists() and not path.suffix:
        raise UsageError(
            f"{sanitize(name)!r} is neither the number of a run nor a file", "ggbench results lists the numbers"
        )
    return [each.run for each in read_runs(path)]
