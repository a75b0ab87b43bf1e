"""Find the runs given on a command line: by number, by model, or in a file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ggbench.decisions.compare.comparison import columns_of
from ggbench.errors import GgbenchError, UsageError
from ggbench.experiments.decode.record import DecodeResult
from ggbench.runs.comparable import runs_of_model
from ggbench.runs.run import LargestContext, Run
from ggbench.runs.stored import read_run
from ggbench.runs.summary import QuantSummary
from ggbench.show.listed_runs import runs_named
from ggbench.text import sanitize

if TYPE_CHECKING:
    from ggbench.decisions.compare.differences import Column
    from ggbench.runs.store.database import Store
    from ggbench.runs.store.runs import StoredRun


PUBLISHED = "published"


def compared_runs(store: Store, named: Sequence[str], model: str | None, against: str | None) -> list[Column]:
    """Return the columns to compare, the base first, each run once; repeats are averaged.

    Raises UsageError for names that are not runs, BadFile for a file without results, and StoreError.
    """
    if model is not None:
        columns = _of_model(store, named, model)
    else:
        found = [(name, run) for name in dict.fromkeys(named) for run in _named(store, name)]
        places = ["" if name.isdecimal() else name for name, _ in found]
        columns = columns_of([QuantSummary.of([run]) for _, run in found], places)
    if against and against != PUBLISHED:
        base = _named(store, against)
        if len(base) != 1:
            hint = "import it, and give the number of the run to compare with"
            raise UsageError(f"{sanitize(against)} has {len(base)} runs", hint)
        columns = [(QuantSummary.of(base),), *columns]
    return columns


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


def _of_model(store: Store, named: Sequence[str], model: str) -> list[Column]:
    """Return a column for each file and setup, with the newest completed runs of each kind."""
    if named:
        raise UsageError(
            "RUN and --model exclude each other", "give run numbers from `ggbench results`, or --model MODEL"
        )
    found, _ = runs_named(store, model)
    if not found:
        raise _no_run_of(store, model)
    quants: dict[str, dict[str, list[Run]]] = {}
    typed = dict.fromkeys(run.subject.model for run in found)
    for newest in (each for name in typed for each in runs_of_model(store, name)):
        runs = list(_measured(store, newest))
        if runs:
            quants.setdefault(_file_and_setup(runs[0]), {}).setdefault(runs[0].head.kind, runs)
    return [_joined(kinds) for kinds in quants.values()][::-1]


def _file_and_setup(run: Run) -> str:
    """Return a key of what is compared as one quant; for a search of contexts, with its slots."""
    subject, setup = run.subject, run.head.setup
    slots = (setup.n_seq_max, setup.n_streams) if isinstance(run.result, LargestContext) else (1, 1)
    return repr((subject.header_sha256 or subject.file, subject.quant, setup.as_asked(), slots))


def _measured(store: Store, found: Iterable[StoredRun]) -> Iterator[Run]:
    """Yield the completed runs that this ggbench can read and that measured something."""
    for stored in found:
        run = None
        with contextlib.suppress(GgbenchError):
            run = read_run(store, stored)
        if run is not None and run.is_complete and run.result is not None:
            yield run


def _joined(kinds: Mapping[str, list[Run]]) -> Column:
    """Join the runs of each kind and, for averages, their repeats; a decode comes first."""
    repeats = sorted(kinds.values(), key=lambda runs: not isinstance(runs[0].result, DecodeResult))
    count = max(map(len, repeats))
    return tuple(QuantSummary.of([runs[n] for runs in repeats if n < len(runs)]) for n in range(count))


def chosen_runs(store: Store, run_ids: tuple[int, ...], model: str | None) -> list[StoredRun]:
    """Return the runs of these numbers, each once, or those of a model, oldest first.

    Raises UsageError unless exactly one of the two is given, and for a model without runs; UnknownName and StoreError
    for a number.
    """
    if bool(run_ids) == bool(model):
        raise UsageError(
            "RUN and --model exclude each other" if run_ids else "no run was given",
            "give run numbers from `ggbench results`, or --model MODEL",
        )
    if run_ids:
        return [store.load_run(run_id) for run_id in dict.fromkeys(run_ids)]
    runs, _ = runs_named(store, model or "")
    if not runs:
        raise _no_run_of(store, model or "")
    return list(runs)[::-1]


def _no_run_of(store: Store, model: str) -> UsageError:
    names = store.models()
    known = (
        f"stored are runs of {', '.join(map(sanitize, names))}" if names else "measure it first: ggbench decode"
    )
    return UsageError(f"no run of {sanitize(model)!r} is stored", known)
