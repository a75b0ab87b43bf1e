"""The Results screen: all stored runs, to filter, mark, open, compare, save and delete.

Threads read the store, each with its own connection, and another ggbench may change it at any time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from msgspec.structs import replace
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.events import ScreenResume, ScreenSuspend
from textual.widgets import Input, Static

from ggbench.decisions.compare.comparison import Comparison, columns_of, compare
from ggbench.decisions.compare.show import comparison_answer
from ggbench.decisions.compare.versus import time_span
from ggbench.errors import GgbenchError, UnknownName
from ggbench.runs.comparable import is_repeatable
from ggbench.runs.experiment import Job
from ggbench.runs.run import Run
from ggbench.runs.store.runs import RUNNING
from ggbench.show.answer import Answer
from ggbench.show.listed_runs import ListedRun, SavedRun, saved_figures
from ggbench.show.presenter import presenter_of
from ggbench.show.words import say
from ggbench.stats.turns import FEWEST_TURNS
from ggbench.text import in_words, sanitize
from ggbench.tui.host import PlotScreen, RunsOpened, RunStored, TaskScreen, host_of, runs_of
from ggbench.tui.screens.dialogs import ConfirmScreen
from ggbench.tui.stored_runs import by_model, describe_runs, job_again, read_runs, saved_runs
from ggbench.tui.widgets.answer_pane import AnswerPane
from ggbench.tui.widgets.bars import FilterInput, KeysFooter, TopLine, key_links
from ggbench.tui.widgets.curves_plot import CurvesPlot
from ggbench.tui.widgets.runs_table import RunsTable
from ggbench.units import counted, format_span


class OpenedRuns(Vertical):
    """The answer of one run, or the comparison of several, above their curves."""

    def __init__(self, runs: Sequence[SavedRun], comparison: Comparison) -> None:
        super().__init__()
        self.run_ids = [run.run_id for run in runs]
        columns, saved = columns_of([each.run for each in runs]), {run.run_id: run for run in runs}
        self._figures = saved_figures([saved[column[0].run_id] for column in columns])
        if len(runs) == 1:
            run = runs[0].run
            details = presenter_of(run.head.kind).details(run)
            self.answer: Answer = replace(
                details, command="", notes=details.notes[:-1]
            )  # the last is its number
            self._title = (
                f"run {run.run_id} · {run.head.kind} · {run.head.started_at[:16].replace('T', ' ')} UTC"
            )
        else:
            numbers = [", ".join(str(one.run_id) for one in column) for column in columns]
            self.answer, self._title = comparison_answer(comparison), f"runs {' with '.join(numbers)}"

    def compose(self) -> ComposeResult:
        pane = AnswerPane(self.answer)
        pane.border_title = Text(self._title)
        pane.border_subtitle = key_links("w more, less · b again · s report · y copy · esc back")
        yield pane
        if self._figures:
            plot = CurvesPlot()
            plot.show(self._figures)
            yield plot

    def on_mount(self) -> None:
        self.query(AnswerPane).focus()  # gone already where a key closed it at once


class ResultsScreen(TaskScreen, PlotScreen):
    """The stored runs by model, newest first; opened ones are beside the table where there is room, else over it."""

    AUTO_FOCUS = ""
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (160, "-wide")]  # noqa: RUF012 - Textual's
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "compare", "Compare", tooltip="Compare the marked runs side by side"),
        Binding("b", "measure_again", "Again", tooltip="Measure the runs again, in turns if several"),
        Binding("slash", "filter", "Filter", tooltip="Filter by words of model, kind, outcome or date"),
        Binding("d", "delete", "Delete", tooltip="Delete the runs"),
        Binding("s", "save(False)", "Report", tooltip="Save a report of the runs as HTML"),
        Binding("S", "save(True)", "Export", tooltip="Save the runs whole, for ggbench import"),
        Binding("y", "copy", "Copy", tooltip="Copy the runs' commands, or a comparison as Markdown"),
        Binding("r", "reload", "Reload", tooltip="Read the stored runs again"),
        Binding("escape", "leave", "Back", tooltip="Close what is open, clear the filter, or unmark all"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._has_read = False
        self._opened: OpenedRuns | None = None
        self._is_from_run = False
        """Whether the Run screen opened it, to which escape leads back."""
        self._again: tuple[int | None, slice] = None, slice(0)
        """The run that was measured again, and the items of the run queue of the last such measurement."""

    def compose(self) -> ComposeResult:
        yield TopLine("results")
        yield FilterInput("filter by model, quant, kind, source, outcome or date", id="filter")
        with Horizontal(id="middle"):
            yield Static("Reading the results…", id="nothing", markup=False)
            yield RunsTable(id="runs")
        yield KeysFooter("/ filter · ")

    def on_mount(self) -> None:
        self._filter_input.display = False
        self.add_class("-empty")

    def action_filter(self) -> None:
        self._filter_input.display = True
        # immediate, unlike `focus()`: letters typed right after belong to it
        self.set_focus(self._filter_input)

    def action_leave(self) -> None:
        """Close what is open, else clear the filter, else unmark all."""
        self.drop("open")
        if self._opened is not None:
            if self._is_from_run:
                self.app.switch_mode("run")
            self._close()
            return
        field = self._filter_input
        if not field.value and not field.has_focus:
            self._table.mark(())
        field.value = ""
        self._to_list()

    @on(Input.Submitted, "#filter")
    def _to_list(self) -> None:
        """Go from the filter to the list."""
        self._show()
        self._filter_input.display = bool(self._filter_input.value)
        self.set_focus(self._table)

    @on(RunsTable.RowSelected)
    def _open_run(self) -> None:
        if (run := self._table.chosen) is not None:
            self.open_runs([run.run_id])

    def action_compare(self) -> None:
        """Compare the marked runs or, if none is, those that were measured again."""
        listed = self._table.those(self._table.marks or self._measured_again)
        over = [run.run_id for run in listed if run.stored.state != RUNNING]
        if len(over) < 2:
            self._say("Mark two or more finished runs with space, then press c.")
        else:
            self.open_runs(over)

    def action_copy(self) -> None:
        if self._opened is not None and len(self._opened.run_ids) > 1:
            self.app.copy_to_clipboard(self._opened.answer.markdown())
        elif runs := self._selected:
            self.app.copy_to_clipboard("\n".join(sanitize(run.stored.command) for run in runs))

    def action_save(self, whole: bool) -> None:
        """Save a report of the runs, or the runs whole, in the current folder, unless one is being saved."""
        runs, before = self._selected, self._latest.get("save")
        run_ids = [run.run_id for run in runs]

        def saved() -> Iterator[str]:
            yield f"Saving {describe_runs(runs)}…"
            from ggbench.formats.report import save_report, save_whole

            with host_of(self).services.open_store() as store:
                if whole:
                    path = save_whole(store, run_ids, Path.cwd())
                else:
                    path = save_report(saved_runs(store, run_ids), Path.cwd())
            yield f"Saved {path}"

        if runs and getattr(before, "is_finished", True):
            self.perform("save", saved, self._say)

    def action_delete(self) -> None:
        """Delete the runs after a question."""
        runs = self._selected

        def delete() -> Iterator[str]:
            with host_of(self).services.open_store() as store:
                for run in runs:
                    with contextlib.suppress(UnknownName):  # gone already
                        store.delete_run(run.run_id)
            yield f"Deleted {describe_runs(runs)}."

        def show(line: str) -> None:
            self._close()
            self._say(line)
            self.action_reload()

        def start(confirmed: bool | None) -> None:
            if confirmed:
                self.perform(f"delete {[run.run_id for run in runs]}", delete, show)

        if runs:
            self.app.push_screen(ConfirmScreen(f"Delete {describe_runs(runs)}?", "Delete"), start)

    def show_failure(self, task: str, error: GgbenchError) -> None:
        """Show the error, in place of the list if it could not be read."""
        if task == "list":
            self._show()
        else:
            self.action_reload()  # the store may differ from what is listed
        if task != "list" or self._table.runs:
            self._say(f"✗ {error.line}")

    @on(ScreenResume)
    @on(RunStored)
    def action_reload(self) -> None:
        """Read the store again, as another screen or another ggbench may have changed it."""
        known = {run.run_id: run for run in self._table.runs}

        def read() -> Iterator[tuple[Sequence[ListedRun], Sequence[str]]]:
            with host_of(self).services.open_store() as store:
                yield read_runs(store, known), store.notices

        def show(read: tuple[Sequence[ListedRun], Sequence[str]]) -> None:
            (runs, notices), table = read, self._table
            self._has_read = True
            table.runs = by_model(runs)
            self._show()
            table.mark({run.run_id for run in runs} & table.marks)
            if notices:
                self._say(" ".join(notices))

        self.perform("list", read, show)

    @on(RunsOpened)
    def _open_from_run(self, message: RunsOpened) -> None:
        self.open_runs(message.run_ids, is_from_run=True)

    @on(ScreenSuspend)
    def _leave_nothing_open(self) -> None:
        """Show the list when another screen leads back here; a dialog leaves what is open."""
        if self.app.current_mode != "results":
            self._close()

    def open_runs(self, run_ids: Sequence[int], *, is_from_run: bool = False) -> None:
        """Open one run in full, or several side by side, in place of what is open."""

        def read() -> Iterator[tuple[list[SavedRun], Comparison]]:
            with host_of(self).services.open_store() as store:
                measured = saved_runs(store, run_ids)
            yield measured, compare(columns_of([each.run for each in measured]))

        def show(read: tuple[list[SavedRun], Comparison]) -> None:
            if self.is_current:
                self._close()
                self._is_from_run, self._opened = is_from_run, OpenedRuns(*read)
                self.query_one("#middle").mount(self._opened)
                self.add_class("-open")

        self.perform("open", read, show)

    def _close(self) -> None:
        if self._opened is not None:
            self._opened.remove()
            self._opened = None
            self.remove_class("-open", "-more")
            self.set_focus(self._table)

    def action_measure_again(self) -> None:
        """Measure one run again, or one of each setting in as many turns as give an interval, after a question.

        Nothing is marked then, so that `c` compares the new runs, and a single one that was there.
        """
        found = [each.run for each in self._selected if each.run and is_repeatable(each.run)]
        runs = [column[0] for column in columns_of(found)]
        services, is_one = host_of(self).services, len(found) == 1
        times = 1 if is_one else FEWEST_TURNS

        def find() -> Iterator[list[Job]]:
            yield times * [job_again(services, run.head) for run in runs]

        def start(jobs: Sequence[Job]) -> None:
            queue = host_of(self).run_queue
            n_before = len(queue.items)
            self._table.mark(())
            self._again = runs[0].run_id if is_one else None, slice(n_before, n_before + len(jobs))
            queue.add(jobs)
            self.app.switch_mode("run")

        if not runs:
            self._say("Only a run whose speed was measured here can be measured again.")
            return
        self.app.push_screen(
            ConfirmScreen(_question(runs, times), "Measure", is_harmless=True),
            lambda confirmed: self.perform("repeat", find, start) if confirmed else None,
        )

    @property
    def _measured_again(self) -> set[int | None]:
        queue, (before, items) = runs_of(self), self._again
        return {before, *(item.run_id for item in queue.items[items])} if queue else set()

    def _say(self, line: str) -> None:
        """Show a line in place of the one before."""
        self.app.clear_notifications()
        self.notify(sanitize(line), markup=False)

    @property
    def _table(self) -> RunsTable:
        return self.query_one(RunsTable)

    @property
    def _filter_input(self) -> FilterInput:
        return self.query_one(FilterInput)

    @property
    def _selected(self) -> Sequence[ListedRun]:
        """The opened runs, else the marked ones, else the one at the cursor; the oldest first."""
        table = self._table
        if self._opened is not None:
            return table.those(self._opened.run_ids)
        return table.those(table.marks) or ([] if table.chosen is None else [table.chosen])

    @on(Input.Changed, "#filter")
    def _show(self) -> None:
        """Show the filtered list, or why it is empty."""
        words, table = self._filter_input.value, self._table
        table.filter(words)
        self.set_class(not table.shown, "-empty")
        if table.shown and self.focused is None:
            self.set_focus(table)
        self.query_one("#nothing", Static).update(Text(self._why_empty(words)))

    def _why_empty(self, words: str) -> str:
        if (error := self.problems.get("list")) is not None and not self._table.runs:
            hint = f"\n{sanitize(error.hint)}" if error.hint else ""
            return f"✗ {sanitize(error.message)}{hint}\n\nPress r to try again."
        if self._table.runs:
            return f"No run matches “{sanitize(words)}”; esc clears the filter."
        return say("tui.no_runs") if self._has_read else "Reading the results…"


def _question(runs: Sequence[Run], times: int) -> str:
    """Ask whether to measure runs again, with the time that they took."""
    names = in_words([f"{sanitize(run.subject.quant)} (run {run.run_id})" for run in runs])
    spans = filter(None, map(time_span, runs))
    took = format_span(times * sum((end - start).total_seconds() for start, end in spans))
    return f"Measure {names} again in {counted(times, 'turn')} (about {took})? Then 3 and c compare them."
