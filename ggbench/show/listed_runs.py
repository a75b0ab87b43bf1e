"""Stored runs for lists and files: an unreadable one is listed with the reason and does not hide the others."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.errors import GgbenchError
from ggbench.machine.records import Imported
from ggbench.models.subject import Subject
from ggbench.record import Record
from ggbench.runs.comparable import update_facts
from ggbench.runs.run import Run
from ggbench.runs.store.database import Store
from ggbench.runs.store.runs import StoredRun, StoredSamples
from ggbench.runs.stored import listed_run, read_observations, read_run
from ggbench.show import ESSENTIAL, UNKNOWN
from ggbench.show.answer import Answer, Facts, Table
from ggbench.show.charts import LineChart, PlottedRun
from ggbench.show.document import rows_document
from ggbench.show.figure import Figure, Value, figure_values, figures_type, member
from ggbench.show.glossary import MARKED_RUN, UNSTEADY
from ggbench.show.names import model_names, quant_name, unambiguous_names
from ggbench.show.presenter import figure_of, line_charts_of, presenter_of
from ggbench.show.run_figures import ANSWERS, note
from ggbench.show.words import say
from ggbench.text import sanitize
from ggbench.units import counted


def measuring_elsewhere(store: Store) -> str:
    """Return a line about another ggbench's run in progress; empty without one. Raises StoreError."""
    found = store.runs_elsewhere()
    if not found:
        return ""
    run, pid = found[0]
    return say(
        "results.elsewhere", pid=str(pid), run_id=str(run.run_id), kind=run.kind, name=quant_name(run.subject)
    )


class ListedRun(Record, dict=True):
    stored: StoredRun
    run: Run | None
    """None if this ggbench cannot read it."""
    problem: str = ""
    """Why the run or its result cannot be read. Printable."""
    model: str = ""
    """A name that distinguishes the model in its list, set by `named_runs`. Printable."""

    @classmethod
    def of(cls, stored: StoredRun, store: Store | None = None) -> ListedRun:
        """Return the run, or why it cannot be read; with the store, an unfinished run is summarized."""
        try:
            run = listed_run(stored) if store is None or stored.is_finished else read_run(store, stored)
        except GgbenchError as error:
            return cls(stored, None, sanitize(error.message))
        unreadable = stored.result_json is not None and run.result is None
        return cls(stored, run, sanitize(run.reason) if unreadable else "")

    @property
    def run_id(self) -> int:
        return self.stored.run_id

    @property
    def subject(self) -> Subject:
        return self.stored.subject

    @property
    def state(self) -> str:
        return sanitize(self.stored.state.replace("_", " "))

    @property
    def answer(self) -> str:
        """Return e.g. `n_ctx 24,576`, `PPL 12.36 ±0.52` if no other column has it; else the state. Printable."""
        short = ""
        if self.run is not None and self.run.is_complete:
            with contextlib.suppress(GgbenchError):
                short = presenter_of(self.run.head.kind).short_answer(self.run)
        return short or (self.state if not self.problem else "cannot be read")

    @functools.cached_property
    def searched(self) -> str:
        """The text that a filter searches, in lower case."""
        stored, subject = self.stored, self.subject
        parts = (
            str(self.run_id), self.model, subject.model, subject.quant, subject.source, stored.kind, self.state,
            stored.started_at.replace("T", " "), self.answer, self.problem,
        )  # fmt: skip
        return " ".join(parts).casefold()

    @property
    def is_unsteady(self) -> bool:
        return self.run is not None and bool(self.run.unsteady)

    @property
    def is_completed(self) -> bool:
        return self.stored.state == Outcome.COMPLETED

    def text(self, key: str) -> str:
        return UNKNOWN if self.run is None else figure_of(key).text(self.run)

    @property
    def note(self) -> str:
        """Return the run's answer if no column has it, and its problems. Printable."""
        run = self.run
        if run is None or self.problem:
            return self.problem
        has_answer = any(self.text(key) != UNKNOWN for key in ANSWERS)
        if not run.is_complete or has_answer:
            return note(run)
        try:
            answer = presenter_of(run.head.kind).ending(run)
        except GgbenchError as error:
            answer = sanitize(error.message)
        return "; ".join(filter(None, (answer, note(run))))


def runs_named(store: Store, model: str, limit: int) -> tuple[tuple[StoredRun, ...], int]:
    """Return the newest runs of a MODEL as it was typed, or else as lists name it, and how many there are."""
    if n_runs := store.count_of(model):
        return store.list_runs(model=model, limit=limit), n_runs
    update_facts(store)
    found = store.facts.named(model)
    return tuple(store.load_runs(found[:limit])), len(found)


def named_runs(runs: Sequence[ListedRun]) -> tuple[ListedRun, ...]:
    """Return the runs with their models named; an unchanged run is the same object."""
    names = model_names([run.subject for run in runs])
    return tuple(
        run if run.model == name else replace(run, model=name) for run, name in zip(runs, names, strict=True)
    )


def _measured(key: str, priority: int = 5) -> Figure[Any]:
    figure: Figure[Any] = figure_of(key)

    def get(listed: ListedRun) -> Value:
        return None if listed.run is None else figure.get(listed.run)

    return replace(
        figure,
        get=get,
        mark=lambda listed: "" if listed.run is None else figure.mark(listed.run),
        priority=priority,
    )


def _outcome_mark(run: ListedRun) -> str:
    is_marked = UNSTEADY in f"{run.text('tok_s')}{run.answer}"
    return UNSTEADY if run.is_unsteady and not is_marked else ""


LISTED = (
    member("run_id", "run", str),
    member("started_at", "started", lambda text: text[:16].replace("T", " "), "stored.started_at", priority=5),
    member("kind", "kind", path="stored.kind", priority=1),
    Figure[ListedRun]("model", "model", lambda run: run.model or run.subject.model),
    member("quant", "quant", path="subject.quant"),
    member("provenance", "source", path="subject.source", priority=4),
    Figure[ListedRun](
        "engine",
        "engine",
        lambda run: sanitize(run.run.setup.engine_option.partition("=")[0]) or None if run.run else None,
        meaning="Null for ggbench's own llama.cpp.",
        priority=4,
    ),
    _measured("w_tokens_per_ms", 3),
    _measured("b_ms", 2),
    _measured("tok_s", ESSENTIAL),
    Figure[ListedRun]("answer", "outcome", lambda run: run.answer, mark=_outcome_mark),
)
"""The figures of a list of runs."""
_MORE = (
    member("state", "state", path="stored.state"),
    Figure[ListedRun](
        "unsteady",
        "unsteady",
        lambda run: (run.run and run.run.unsteady) or None,
        meaning="What disturbed the measurement; null if it was steady.",
    ),
    member("file", "file", path="subject.file"),
    *(_measured(key) for key in ("n_ctx", "max_n_ctx", "n_gen", "prefill_ms")),
    Figure[ListedRun](
        "reason",
        "reason",
        lambda run: run.stored.reason or run.problem or None,
        meaning="Why the run did not complete or cannot be read.",
    ),
    member("command", "command", path="stored.command"),
)
RESULTS = rows_document(
    "results",
    "results",
    "The stored runs, the most recent first.",
    figures_type("ListedRun", (*LISTED, *_MORE), "A stored run.", {"imported": Imported | None}),
)


def listed_rows(runs: Sequence[ListedRun]) -> dict[str, object]:
    """Return the members of `RESULTS`."""
    rows = []
    for run in runs:
        environment = run.stored.environment
        imported = None if environment is None else environment.imported
        rows.append(figure_values((*LISTED, *_MORE), run) | {"imported": imported})
    return {"rows": rows}


def results_answer(runs: Sequence[ListedRun], n_runs: int, model: str | None = None) -> Answer:
    """Return the newest of `n_runs` runs, of a model if one is given, the newest first."""
    if not runs and model is not None:
        return Answer(say("results.none_of", model=model), "ggbench results")
    if not runs:
        return Answer(say("results.none"), "ggbench demo")
    key = "results.newest" if len(runs) < n_runs else "results.all"
    text = say(key, runs=counted(n_runs, "run"), shown=len(runs))
    notes = [MARKED_RUN] if any(run.is_unsteady for run in runs) else []
    reasons = Facts([(f"run {run.run_id}", run.note) for run in runs])
    figures = [figure for figure in LISTED if figure.key != "provenance"]
    table = Table(figures, named_runs(runs), style=lambda run: "" if run.is_completed else "dim")
    return Answer(text, f"ggbench results show {runs[0].run_id}", [table], notes, [reasons])


class SavedRun(Record):
    run: Run
    samples: StoredSamples
    observations: Sequence[object] = ()

    @classmethod
    def load(cls, store: Store, run_id: int) -> SavedRun:
        stored = store.load_run(run_id)
        bodies = [each.body for each in read_observations(store, stored).observations]
        return cls(read_run(store, stored), store.load_samples(run_id), bodies)

    @property
    def run_id(self) -> int | None:
        return self.run.run_id


def saved_figures(runs: Sequence[SavedRun]) -> tuple[LineChart, ...]:
    return line_charts_of([one.run.head.kind for one in runs], plotted_runs(runs))


def plotted_runs(runs: Sequence[SavedRun]) -> tuple[PlottedRun, ...]:
    names = unambiguous_names([one.run for one in runs])
    return tuple(
        PlottedRun(
            name,
            one.samples.position,
            one.samples.step_ns,
            one.run.fit,
            one.run.limit,
            one.observations,
            one.samples.lengths,
            one.run.head.settings,
            one.run.result,
        )
        for name, one in zip(names, runs, strict=True)
    )
