"""Find the runs given on a command line: by number, by model, or in a file."""

from __future__ import annotations

import contextlib
from collections import Counter
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
from ggbench.units import counted

if TYPE_CHECKING:
    from ggbench.decisions.compare.differences import Column
    from ggbench.runs.store.database import Store
    from ggbench.runs.store.runs import StoredRun


PUBLISHED = "published"


def compared_runs(
    store: Store, named: Sequence[str], model: str | None, against: str | None
) -> tuple[list[Column], list[str]]:
    """Return the columns to compare, the base first, and notices about omitted runs; repeats are averaged.

    Raises UsageError for names that are not runs, BadFile for a file without results, and StoreError.
    """
    _refuse_repeats([*named, *([against] if against else [])])
    notices: list[str] = []
    if model is not None:
        columns, notices = _of_model(store, named, model)
    else:
        found = [(name, run) for name in named for run in _named(store, name)]
        places = ["" if name.isdecimal() else name for name, _ in found]
        columns = columns_of([QuantSummary.of([run]) for _, run in found], places)
    if against and against != PUBLISHED:
        base = _base(_named(store, against), columns, against)
        columns = [base, *columns]
    return columns, notices


def _refuse_repeats(names: Sequence[str]) -> None:
    """Raise UsageError for the number of a run that is given more than once."""
    for number, count in Counter(int(name) for name in names if name.isdecimal()).items():
        if count > 1:
            raise UsageError(f"run {number} is given {count} times", "give each run once")


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


def _of_model(store: Store, named: Sequence[str], model: str) -> tuple[list[Column], list[str]]:
    """Return a column for each file and setup, with the newest runs of each kind, and a notice about the other runs."""
    if named:
        raise UsageError(
            "RUN and --model exclude each other", "give run numbers from `ggbench results`, or --model MODEL"
        )
    found, _ = runs_named(store, model)
    if not found:
        raise _no_run_of(store, model)
    quants: dict[str, dict[str, list[Run]]] = {}
    n_completed, typed = 0, dict.fromkeys(run.subject.model for run in found)
    n_stored = sum(map(store.count_of, typed))
    for count, newest in (each for name in typed for each in runs_of_model(store, name)):
        n_completed += count
        runs = list(_measured(store, newest))
        if runs:
            quants.setdefault(_file_and_setup(runs[0]), {}).setdefault(runs[0].head.kind, runs)
    n_left_out = n_stored - n_completed
    notices = (
        [f"{counted(n_left_out, 'run')} left out: not completed, or of another ggbench"] if n_left_out else []
    )
    return [_joined(kinds) for kinds in quants.values()][::-1], notices


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


def _base(runs: Sequence[Run], columns: Sequence[Column], name: str) -> Column:
    """Return the base: the only run of its file, or the one of the same kind and quant as the first column."""
    if len(runs) == 1:
        return (QuantSummary.of(runs),)
    own = columns[0][0].run if columns else None
    alike = [
        run for run in runs if own and (run.head.kind, run.subject.quant) == (own.head.kind, own.subject.quant)
    ]
    if len(alike) == 1:
        return (QuantSummary.of(alike),)
    what = f"{own.head.kind} of {sanitize(own.subject.quant)}" if own else "run"
    hint = "import it, and give the number of the run to compare with"
    raise UsageError(f"{sanitize(name)} has {len(runs)} runs, {len(alike)} of them a {what}", hint)


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
