"""Stored runs for lists and files: one that cannot be read is listed with its reason and does not hide the others."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.errors import GgbenchError
from ggbench.machine.records import MachineReading
from ggbench.models.subject import Subject
from ggbench.runs.run import Run
from ggbench.runs.store.database import Store
from ggbench.runs.store.runs import StoredRun, StoredSamples
from ggbench.runs.stored import listed_run, read_recording, read_run
from ggbench.runs.summary import QuantSummary
from ggbench.show import UNKNOWN
from ggbench.show.columns import ANSWERS, column_of, note
from ggbench.show.figures import Figure, PlottedRun
from ggbench.show.names import model_names, unambiguous_names
from ggbench.show.presenter import figures_of, presenter_of
from ggbench.text import sanitize


class ListedRun(msgspec.Struct, frozen=True):
    """One run of the store as a list shows it."""

    stored: StoredRun
    run: Run | None
    """None where this ggbench cannot read it."""
    problem: str = ""
    """Why the run or its result cannot be read. Printable."""
    model: str = ""
    """The model by a name that distinguishes it in its list, as `named_runs` gives it. Printable."""

    @classmethod
    def of(cls, stored: StoredRun, store: Store | None = None) -> ListedRun:
        """The run, or the reason why it cannot be read; never raises for a kind or a record.

        With the store, one that did not finish has what its samples show.
        """
        try:
            run = listed_run(stored) if store is None or stored.is_finished else read_run(store, stored)
        except GgbenchError as error:
            return cls(stored, None, sanitize(error.message))
        unreadable = stored.result_json is not None and run.result is None
        return cls(stored, run, sanitize(run.reason) if unreadable else "")

    @property
    def run_id(self) -> int:
        """Number of the run in the store."""
        return self.stored.run_id

    @property
    def subject(self) -> Subject:
        """What was measured."""
        return self.stored.subject

    @property
    def summary(self) -> QuantSummary | None:
        """The run as columns take it; None where it cannot be read."""
        return None if self.run is None else QuantSummary.of([self.run])

    @property
    def state(self) -> str:
        """`completed`, `out of memory`, `running`. Printable."""
        return sanitize(self.stored.state.replace("_", " "))

    @property
    def answer(self) -> str:
        """`n_ctx 24,576`, `PPL 12.36 ±0.52`: what no other column has of a completed run; else its state. Printable."""
        run = self.run
        if run is None or not run.is_complete:
            return self.state
        try:
            return presenter_of(run.head.kind).short_answer(run) or self.state
        except GgbenchError:
            return self.state

    @property
    def is_completed(self) -> bool:
        """Whether the run ended as planned."""
        return self.stored.state == Outcome.COMPLETED

    def text(self, key: str) -> str:
        """The text of a column of `ggbench.show.columns`; an em dash where the run cannot be read."""
        summary = self.summary
        return UNKNOWN if summary is None else column_of(key).text(summary)

    @property
    def note(self) -> str:
        """What to know of it beside the columns: its answer where no column has it, and what is wrong. Printable."""
        run, summary = self.run, self.summary
        if run is None or summary is None or self.problem:
            return self.problem
        has_answer = any(self.text(key) != UNKNOWN for key in ANSWERS)
        if not run.is_complete or has_answer:
            return note(summary)
        try:
            answer = presenter_of(run.head.kind).ending(run)
        except GgbenchError as error:
            answer = sanitize(error.message)
        return "; ".join(filter(None, (answer, note(summary))))


def named_runs(runs: Sequence[ListedRun]) -> tuple[ListedRun, ...]:
    """Return the runs with their models named; one whose name is as it was is the same object."""
    names = model_names([run.subject for run in runs])
    return tuple(run if run.model == name else replace(run, model=name) for run, name in zip(runs, names, strict=True))


class SavedRun(msgspec.Struct, frozen=True):
    """What is written of one run."""

    summary: QuantSummary
    samples: StoredSamples
    observations: Sequence[object] = ()
    """What was observed beside the samples, for what draws it."""

    @classmethod
    def of(cls, store: Store, summary: QuantSummary) -> SavedRun:
        """Read what is stored of the leading run of a summary. Raises StoreError and UnknownName."""
        assert summary.run.run_id is not None
        stored = store.load_run(summary.run.run_id)
        bodies = [each.body for each in read_recording(store, stored).observations]
        return cls(summary, store.load_samples(stored.run_id), bodies)

    @classmethod
    def stored(cls, store: Store, stored: StoredRun) -> SavedRun:
        """Read a stored run whole. Raises StoreError where this ggbench cannot read it."""
        return cls.of(store, QuantSummary.of([read_run(store, stored)]))

    @property
    def readings(self) -> tuple[MachineReading, ...]:
        """Of the machine while it ran."""
        return tuple(each for each in self.observations if isinstance(each, MachineReading))

    @property
    def run_id(self) -> int | None:
        """Number of the run in the store."""
        return self.summary.run.run_id


def saved_figures(runs: Sequence[SavedRun]) -> tuple[Figure, ...]:
    """Return what there is to draw of stored runs, by the shortest names that distinguish them."""
    return figures_of([one.summary.run.head.kind for one in runs], plotted_runs(runs))


def plotted_runs(runs: Sequence[SavedRun]) -> tuple[PlottedRun, ...]:
    """Return stored runs as figures take them, by the shortest names that distinguish them."""
    return tuple(
        PlottedRun(
            name,
            one.samples.position,
            one.samples.step_ns,
            one.summary.fit,
            one.summary.limit,
            one.observations,
            one.samples.series.tolist(),
            one.summary.run.head.settings,
            one.summary.run.result,
        )
        for name, one in zip(unambiguous_names([one.summary for one in runs]), runs, strict=True)
    )
