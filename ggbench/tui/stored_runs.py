"""Stored runs with the rows that their samples make, as the Results screen shows them.

Any number of ggbench share one store: a run may be deleted, finished or added between two looks at it, and one that
cannot be read must not hide the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ggbench.errors import GgbenchError, StoreError, UnknownName
from ggbench.experiments.stored import stored_certificate, stored_row
from ggbench.plain import plain
from ggbench.records.outcome import Outcome
from ggbench.records.run import Certificate
from ggbench.report.columns import COLUMNS, Value, note
from ggbench.report.plot.series import LatencySeries, measured_series
from ggbench.report.saving import SavedRun
from ggbench.store.database import Store
from ggbench.store.runs import RUNNING, RunSummary, Samples
from ggbench.units import format_count

_GLYPHS = {Outcome.COMPLETED.value: "✓", RUNNING: "…", Outcome.CANCELLED.value: "–"}

_NAMED_RUNS = 8
"""Maximum number of runs that a question lists by number."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """One run of the store."""

    summary: RunSummary
    row: Row
    """Made from its samples where it was interrupted or still runs, and from its name alone where it cannot be read."""
    problem: str = ""
    """Why the row is not what the run made of itself; printable."""

    @property
    def run_id(self) -> int:
        """Of the store."""
        return self.summary.run_id

    @property
    def is_running(self) -> bool:
        """Whether it was going on when it was listed."""
        return self.summary.state == RUNNING

    @property
    def name(self) -> str:
        """Model and quant, printable."""
        return plain(f"{self.summary.model} {self.summary.quant}")

    @property
    def note(self) -> str:
        """What to know before trusting it, printable."""
        return self.problem or note(self.row)


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """One run with its samples."""

    run: StoredRun
    samples: Samples
    certificate: Certificate | None = None
    """Of a search; None for a run of another kind."""

    def series(self) -> LatencySeries:
        """Return it for a plot, with the fitted line and the limit."""
        name, row = f"{self.run.name} (run {self.run.run_id})", self.run.row
        return measured_series(name, self.samples.position, self.samples.step_ns, row.fit, row.limit)

    def to_save(self) -> SavedRun:
        """Return what is written of it to files."""
        return SavedRun(self.run.run_id, self.run.row, self.samples, self.series())


@dataclass(frozen=True, slots=True)
class RunColumn:
    """One column of the list of runs."""

    key: str
    header: str
    value: Callable[[StoredRun], Value]
    """What it is sorted by; None is unknown."""
    text: Callable[[StoredRun], str]
    right_aligned: bool = False


def _measured(key: str) -> RunColumn:
    column = COLUMNS[key]

    header = f"{column.header} {column.unit}" if column.unit else column.header
    return RunColumn(
        key, header, lambda run: column.value(run.row), lambda run: column.text(run.row), column.right_aligned
    )


def _named(key: str, header: str, value: Callable[[StoredRun], str]) -> RunColumn:
    return RunColumn(key, header, value, lambda run: plain(value(run)))


def _found(run: StoredRun) -> str:
    """What a search found; empty for other runs, and where it found nothing."""
    is_answered = run.summary.kind == "maxctx" and run.row.outcome is Outcome.COMPLETED
    if not is_answered or run.row.max_n_ctx is None:
        return ""
    return f"n_ctx {format_count(run.row.max_n_ctx)}{'' if run.row.max_n_ctx_verified else '?'}"


COLUMNS_OF_RUNS: tuple[RunColumn, ...] = (
    RunColumn("run", "run", lambda run: run.run_id, lambda run: str(run.run_id), right_aligned=True),
    RunColumn("state", "", lambda run: run.summary.state, lambda run: _GLYPHS.get(run.summary.state, "✗")),
    _named("model", "model", lambda run: run.summary.model),
    _named("quant", "quant", lambda run: run.summary.quant),
    _measured("w_tokens_per_ms"),
    _measured("b_ms"),
    _measured("tok_s"),
    _named("outcome", "outcome", lambda run: _found(run) or run.summary.state.replace("_", " ")),
    _measured("p50_ms"),
    _measured("p99_ms"),
    _measured("w_ratio"),
    _measured("b_ratio"),
    _measured("b_w16_ms"),
    _measured("bpw"),
    _measured("prefill_ms"),
    _measured("max_n_ctx"),
    RunColumn(
        "samples", "samples", lambda run: run.summary.n_samples, lambda run: format_count(run.summary.n_samples), True
    ),
    _named("kind", "kind", lambda run: run.summary.kind),
    _named("source", "source", lambda run: run.summary.provenance),
    _named("started", "started UTC", lambda run: run.summary.started_at[:16].replace("T", " ")),
    _named("note", "note", lambda run: run.note),
)
"""What a list of runs shows, the most telling first: what a narrow terminal cuts off is at the end."""


def read_runs(store: Store, known: Mapping[int, StoredRun]) -> tuple[StoredRun, ...]:
    """Every run, newest first; those of `known` that did not change since are taken from there. Raises StoreError."""
    runs = []
    for summary in store.list_runs():
        before = known.get(summary.run_id)
        unchanged = before is not None and before.summary == summary
        runs.append(before if before is not None and unchanged else _read_run(store, summary))
    return tuple(run for run in runs if run is not None)


def read_measured(store: Store, run: StoredRun) -> MeasuredRun:
    """The run with its samples and certificate. Raises StoreError, also where another ggbench deleted it meanwhile."""
    try:
        is_search = run.summary.kind == "maxctx"
        certificate = stored_certificate(store, store.load_run(run.run_id)) if is_search else None
        return MeasuredRun(run, store.load_samples(run.run_id), certificate)
    except UnknownName as error:
        raise StoreError(f"run {run.run_id} was deleted meanwhile", "the list is up to date again") from error


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


def matching(runs: Iterable[StoredRun], words: str) -> tuple[StoredRun, ...]:
    """Runs that have every one of the words in what they show, in any case."""
    wanted = words.casefold().split()
    return tuple(run for run in runs if _has(_searched(run), wanted))


def in_order(runs: Sequence[StoredRun], column: RunColumn, *, falling: bool) -> tuple[StoredRun, ...]:
    """Sorted by a column, what is not known last either way; equals stay in the order given."""
    known = [(value, run) for run in runs if (value := _sort_value(column, run)) is not None]
    unknown = [run for run in runs if _sort_value(column, run) is None]
    known.sort(key=lambda pair: pair[0], reverse=falling)
    return (*(run for _, run in known), *unknown)


def count_text(count: int) -> str:
    """`1 run`, `2 runs`."""
    return f"{format_count(count)} run{'' if count == 1 else 's'}"


def describe_runs(runs: Sequence[StoredRun]) -> str:
    """For a question about them, with their numbers, for a filter may hide some."""
    if len(runs) == 1:
        return f"run {runs[0].run_id} ({runs[0].name})"
    numbers = ", ".join(str(run.run_id) for run in runs[:_NAMED_RUNS])
    return f"{count_text(len(runs))} ({numbers}{', …' if len(runs) > _NAMED_RUNS else ''})"


def describe_list(
    runs: Sequence[StoredRun], shown: Sequence[StoredRun], marks: Collection[int], column: RunColumn, *, falling: bool
) -> str:
    """`2 of 4 runs · 1 marked, 1 hidden · newest first`; empty where there are none."""
    if not runs:
        return ""
    n_shown, n_runs, n_marked = len(shown), len(runs), len(marks)
    parts = [f"{format_count(n_shown)} of {format_count(n_runs)} runs" if n_shown < n_runs else count_text(n_runs)]
    if n_marked:
        hidden = n_marked - sum(run.run_id in marks for run in shown)
        parts.append(f"{format_count(n_marked)} marked" + (f", {format_count(hidden)} hidden" if hidden else ""))
    name = "state" if column.key == "state" else column.header
    parts.append("newest first" if name == "run" and falling else f"by {name} {'▼' if falling else '▲'}")
    return " · ".join(parts)


def still_running(runs: Sequence[StoredRun], becomes: str) -> tuple[str, ...]:
    """Return a sentence for each run in progress: `Run 3 is still running: ….`"""
    return tuple(f"Run {run.run_id} is still running: {becomes}." for run in runs if run.is_running)


def _read_run(store: Store, summary: RunSummary) -> StoredRun | None:
    """None where the run was deleted since it was listed."""
    if summary.row is not None:
        return StoredRun(summary, summary.row)
    try:
        row = stored_row(store, store.load_run(summary.run_id))
    except UnknownName:
        return None
    except GgbenchError as error:
        return StoredRun(summary, _named_row(summary, error.message), plain(error.message))
    return StoredRun(summary, row, plain(summary.row_error))


def _named_row(summary: RunSummary, reason: str) -> Row:
    """What a list knows of a run without reading more of it."""
    return Row(
        model=summary.model,
        quant=summary.quant,
        file=summary.file,
        provenance=summary.provenance,
        file_bytes=None,
        n_params=None,
        bpw=None,
        weight_bytes=None,
        kv_bytes_per_token=None,
        outcome=Outcome(summary.state) if summary.state in list(Outcome) else Outcome.INTERRUPTED,
        reason=reason,
        run_id=summary.run_id,
        command=summary.command,
    )


def _searched(run: StoredRun) -> str:
    summary = run.summary
    parts = (
        str(run.run_id), summary.model, summary.quant, summary.provenance, summary.kind,
        summary.state.replace("_", " "), summary.started_at.replace("T", " "), run.note,
    )  # fmt: skip
    return " ".join(parts).casefold()


def _has(text: str, words: Sequence[str]) -> bool:
    return all(word in text for word in words)


def _sort_value(column: RunColumn, run: StoredRun) -> str | float | None:
    value = column.value(run)
    return value.casefold() if isinstance(value, str) else value
