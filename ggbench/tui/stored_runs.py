"""Stored runs as the Results screen shows them.

Any number of ggbench share one store: a run may be deleted, finished or added between two looks at it, and one that
cannot be read must not hide the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ggbench.errors import GgbenchError, StoreError, UnknownName
from ggbench.experiments.stored import read_recording, read_run
from ggbench.plain import plain
from ggbench.records.machine import MachineReading
from ggbench.records.outcome import Outcome
from ggbench.records.run import Run
from ggbench.records.summary import QuantSummary
from ggbench.report.columns import COLUMNS, Value, max_n_ctx_text
from ggbench.report.listed_runs import ListedRun, named_runs
from ggbench.report.names import quant_name
from ggbench.report.plot.series import LatencySeries, measured_series
from ggbench.report.saving import SavedRun
from ggbench.store.database import Store
from ggbench.store.runs import RUNNING, Samples, StoredRun
from ggbench.tui.tables import Column, has_words
from ggbench.units import format_count

_GLYPHS = {Outcome.COMPLETED.value: "✓", RUNNING: "…", Outcome.CANCELLED.value: "–"}

_UNSTEADY = "!"
"""Of a run that completed, but whose samples should not be trusted."""

_NAMED_RUNS = 8
"""Maximum number of runs that a question lists by number."""


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """One run with its samples."""

    listed: ListedRun
    samples: Samples
    readings: tuple[MachineReading, ...] = ()
    """Of the machine while it ran."""

    @property
    def run_id(self) -> int:
        """Of the store."""
        return self.listed.run_id

    @property
    def has_samples(self) -> bool:
        """Whether there is anything to plot."""
        return len(self.samples.step_ns) > 0

    @property
    def summary(self) -> QuantSummary:
        """Return it as tables take it. Raises StoreError where this ggbench cannot read it."""
        if (summary := self.listed.summary) is None:
            raise StoreError(f"run {self.run_id} cannot be read: {self.listed.problem}", "upgrade ggbench to read it")
        return summary

    def series(self) -> LatencySeries:
        """Return it for a plot of its own, with the fitted line and the limit where they can be read."""
        summary = self.listed.summary
        fit, limit = (summary.fit, summary.limit) if summary else (None, None)
        return measured_series(quant_name(self.listed.subject), self.samples.position, self.samples.step_ns, fit, limit)

    def to_save(self) -> SavedRun:
        """Return what is written of it to files. Raises StoreError as `summary`."""
        return SavedRun(self.summary, self.samples)


RunColumn: TypeAlias = Column[ListedRun]


def is_running(run: ListedRun) -> bool:
    """Whether it was going on when it was listed."""
    return run.stored.state == RUNNING


def _measured(key: str) -> RunColumn:
    column = COLUMNS[key]

    def value(run: ListedRun) -> Value:
        return None if run.summary is None else column.value(run.summary)

    header = f"{column.header} {column.unit}" if column.unit else column.header
    return RunColumn(key, header, lambda run: run.text(key), value, column.right_aligned, column.right_aligned)


def _named(key: str, header: str, value: Callable[[ListedRun], str]) -> RunColumn:
    return RunColumn(key, header, lambda run: plain(value(run)), value, right_aligned=False)


def _found(run: ListedRun) -> str:
    """The largest context of a search that ended as planned; empty for other runs, and where it found none."""
    summary = run.summary
    return "" if summary is None or summary.max_n_ctx is None else f"n_ctx {max_n_ctx_text(summary)}"


def _glyph(run: ListedRun) -> str:
    decode = run.summary and run.summary.decode
    return _UNSTEADY if run.is_completed and decode and decode.unsteady else _GLYPHS.get(run.stored.state, "✗")


COLUMNS_OF_RUNS: tuple[RunColumn, ...] = (
    RunColumn("run", "run", lambda run: str(run.run_id), lambda run: run.run_id, descending=True),
    RunColumn("state", "", _glyph, lambda run: run.stored.state, False),
    _named("model", "model", lambda run: run.model),
    _named("quant", "quant", lambda run: run.subject.quant),
    _named("kind", "kind", lambda run: run.stored.kind),
    _measured("tok_s"),
    _measured("w_tokens_per_ms"),
    _measured("b_ms"),
    _named("outcome", "outcome", lambda run: _found(run) or run.state),
    _measured("p50_ms"),
    _measured("p99_ms"),
    _measured("w_ratio"),
    _measured("b_ratio"),
    _measured("b_w16_ms"),
    _measured("bpw"),
    _measured("prefill_ms"),
    _measured("max_n_ctx"),
    RunColumn(
        "samples", "samples", lambda run: format_count(run.stored.n_samples), lambda run: run.stored.n_samples,
        descending=True,
    ),
    _named("source", "source", lambda run: run.subject.source),
    _named("started", "started UTC", lambda run: run.stored.started_at[:16].replace("T", " ")),
    _named("note", "note", lambda run: run.note),
)  # fmt: skip
"""What a list of runs shows, the most important first: what a narrow terminal cuts off is at the end."""


def finished_runs(store: Store) -> Iterator[Run]:
    """Every finished run that this ggbench can read, newest first. Raises StoreError where the store cannot be read."""
    for stored in store.list_runs():
        if stored.is_finished and (run := ListedRun.of(stored).run) is not None:
            yield run


def read_runs(store: Store, known: Mapping[int, ListedRun]) -> tuple[ListedRun, ...]:
    """Every run, newest first; those of `known` that did not change since are taken from there. Raises StoreError."""
    runs = []
    for stored in store.list_runs():
        before = known.get(stored.run_id)
        runs.append(before if before is not None and before.stored == stored else _read_run(store, stored))
    return named_runs([run for run in runs if run is not None])


def read_measured(store: Store, run_id: int) -> MeasuredRun:
    """The run with its samples and readings. Raises StoreError, also where another ggbench deleted it meanwhile."""
    try:
        stored = store.load_run(run_id)
        samples = store.load_samples(run_id)
        listed = _read_run(store, stored)
        readings = read_recording(store, stored).of(MachineReading) if listed and listed.run else ()
    except UnknownName:
        listed = None
    if listed is None:
        raise StoreError(f"run {run_id} was deleted meanwhile", "the list is up to date again")
    return MeasuredRun(listed, samples, readings)


def delete_runs(store: Store, run_ids: Iterable[int]) -> tuple[str, ...]:
    """Delete runs with their samples; returns why some are still there. Those that are gone already are no problem."""
    problems = []
    for run_id in run_ids:
        try:
            store.delete_run(run_id)
        except UnknownName:
            continue
        except GgbenchError as error:
            problems.append("; ".join(part for part in (error.message, error.hint) if part))
    return tuple(problems)


def matching(runs: Iterable[ListedRun], words: str) -> tuple[ListedRun, ...]:
    """Runs that have every one of the words in what they show, in any case."""
    return tuple(run for run in runs if has_words(_searched(run), words))


def count_text(count: int) -> str:
    """`1 run`, `2 runs`."""
    return f"{format_count(count)} run{'' if count == 1 else 's'}"


def describe_runs(runs: Sequence[ListedRun]) -> str:
    """For a question about them, with their numbers, for a filter may hide some."""
    if len(runs) == 1:
        return f"run {runs[0].run_id} ({runs[0].model} {plain(runs[0].subject.quant)})"
    numbers = ", ".join(str(run.run_id) for run in runs[:_NAMED_RUNS])
    return f"{count_text(len(runs))} ({numbers}{', …' if len(runs) > _NAMED_RUNS else ''})"


def still_running(runs: Sequence[ListedRun], becomes: str) -> tuple[str, ...]:
    """Return a sentence for each run in progress: `Run 3 is still running: ….`"""
    return tuple(f"Run {run.run_id} is still running: {becomes}." for run in runs if is_running(run))


def _read_run(store: Store, stored: StoredRun) -> ListedRun | None:
    """As far as its samples go where it has not finished; None where it was deleted since it was listed."""
    listed = ListedRun.of(stored) if stored.is_finished else None
    if listed is not None and not listed.problem:
        return listed
    try:
        run = read_run(store, stored)  # if its result is of another version, its samples may still be read
    except UnknownName:
        return None
    except GgbenchError as error:
        return ListedRun(stored, None, plain(error.message))
    return ListedRun(stored, run, plain(run.reason) if listed else "")


def _searched(run: ListedRun) -> str:
    stored, subject = run.stored, run.subject
    parts = (
        str(run.run_id), run.model, subject.model, subject.quant, subject.source, stored.kind, run.state,
        stored.started_at.replace("T", " "), run.note,
    )  # fmt: skip
    return " ".join(parts)
