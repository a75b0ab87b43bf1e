"""Stored runs for the Results screen.

Several ggbench processes may share one store: runs may be deleted, finished or added between two reads, and an
unreadable one must not hide the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from ggbench.engines.endings import Outcome
from ggbench.runs.store.database import Store
from ggbench.runs.store.runs import RUNNING
from ggbench.show.glossary import UNSTEADY
from ggbench.show.listed_runs import ListedRun, named_runs
from ggbench.show.presenter import figure_of, presenter_of
from ggbench.stats.intervals import Estimate
from ggbench.text import sanitize
from ggbench.tui.tables import TableColumn
from ggbench.units import counted, format_count

_GLYPHS = {Outcome.COMPLETED.value: "✓", RUNNING: "…", Outcome.CANCELLED.value: "–"}

_NAMED_RUNS = 8
"""Maximum number of runs listed by number in a question."""


RunColumn: TypeAlias = TableColumn[ListedRun]


def may_draw(run: ListedRun) -> bool:
    """Return whether the run may have figures."""
    has_steps = run.stored.state == RUNNING or bool(run.stored.n_samples)
    if has_steps or run.run is None:
        return has_steps
    presenter, environment = presenter_of(run.run.head.kind), run.stored.environment
    is_imported = environment is not None and environment.imported is not None
    return bool(presenter.plotted) and (is_imported or not presenter.has_samples)


def _measured(key: str) -> RunColumn:
    figure = figure_of(key)

    def value(run: ListedRun) -> float | None:
        found = None if run.summary is None else figure.get(run.summary)
        return found.value if isinstance(found, Estimate) else found  # type: ignore[return-value]

    return RunColumn(key, figure.title, lambda run: run.text(key), value, True, True)


def _named(key: str, header: str, value: Callable[[ListedRun], str]) -> RunColumn:
    return RunColumn(key, header, lambda run: sanitize(value(run)), value, right_aligned=False)


def _glyph(run: ListedRun) -> str:
    is_unsteady = run.is_completed and run.run is not None and run.run.unsteady
    return UNSTEADY if is_unsteady else _GLYPHS.get(run.stored.state, "✗")


COLUMNS_OF_RUNS: tuple[RunColumn, ...] = (
    RunColumn("run", "run", lambda run: str(run.run_id), lambda run: run.run_id, descending=True),
    RunColumn("state", "", _glyph, lambda run: run.stored.state, False),
    _named("quant", "quant", lambda run: run.subject.quant),
    _named("kind", "kind", lambda run: run.stored.kind),
    _measured("tok_s"),
    _named("outcome", "outcome", lambda run: run.answer),
    *map(_measured, ("w_tokens_per_ms", "b_ms", "p50_ms", "p99_ms", "w_ratio", "b_ratio", "b_w16_ms", "bpw")),
    *map(_measured, ("ppl", "kld_mean", "same_top", "prefill_ms", "max_n_ctx")),
    RunColumn("samples", "samples", lambda run: format_count(run.stored.n_samples), lambda run: run.stored.n_samples,
              descending=True),
    _named("source", "source", lambda run: run.subject.source),
    _named("started", "started UTC", lambda run: run.stored.started_at[:16].replace("T", " ")),
    _named("note", "note", lambda run: run.note),
)  # fmt: skip
"""The most important columns come first, as a narrow terminal cuts off the last."""


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


def matching(runs: Iterable[ListedRun], words: str) -> list[ListedRun]:
    """Return the runs whose text contains all the words, ignoring case."""
    wanted = words.casefold().split()
    return [run for run in runs if all(word in run.searched for word in wanted)]


def describe_runs(runs: Sequence[ListedRun]) -> str:
    """Return the runs' names for a question, with numbers, as a filter may hide some."""
    if len(runs) == 1:
        return f"run {runs[0].run_id} ({runs[0].model} {sanitize(runs[0].subject.quant)})"
    numbers = ", ".join(str(run.run_id) for run in runs[:_NAMED_RUNS])
    return f"{counted(len(runs), 'run')} ({numbers}{', …' if len(runs) > _NAMED_RUNS else ''})"
