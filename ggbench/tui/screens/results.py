"""The Results screen: every stored run, to sort, filter, mark, open, compare, save and delete.

The store is read in threads, each with its own connection, and another ggbench may change it at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import ScreenResume
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Footer, Input, Static
from textual.worker import Worker, WorkerState, get_current_worker

from ggbench.errors import GgbenchError, StoreError
from ggbench.plain import plain
from ggbench.report.listed_runs import ListedRun
from ggbench.report.saving import SavedForm, save_runs
from ggbench.tui.host import host_of
from ggbench.tui.messages import RunStored
from ggbench.tui.screens.confirm import ConfirmScreen
from ggbench.tui.screens.save_choice import SaveChoice
from ggbench.tui.stored_runs import (
    COLUMNS_OF_RUNS,
    MeasuredRun,
    RunColumn,
    comparable,
    count_text,
    delete_runs,
    describe_list,
    describe_runs,
    in_order,
    is_running,
    matching,
    read_measured,
    read_runs,
    still_running,
)
from ggbench.tui.widgets.runs_table import RunsTable
from ggbench.tui.widgets.status_message import StatusMessage
from ggbench.units import format_count

_NO_RUNS = """No runs yet.

Choose a model in the Library (1), mark quants with space and press b.
Their runs appear here; mark two with space and press c to compare them."""


@dataclass
class _RunsRead(Message):
    """A thread read the list of runs."""

    runs: tuple[ListedRun, ...]
    notices: tuple[str, ...]


@dataclass
class _ReadingFailed(Message):
    """A thread failed to read the list of runs."""

    error: GgbenchError


@dataclass
class _MeasuredRead(Message):
    """A thread read the samples of runs to open."""

    runs: tuple[MeasuredRun, ...]


@dataclass
class _Done(Message):
    """A thread finished, with lines to show or an error."""

    lines: tuple[str, ...] = ()
    error: GgbenchError | None = None
    store_changed: bool = False


class ResultsScreen(Screen[None]):
    """The list of stored runs, newest first."""

    AUTO_FOCUS = ""
    CSS_PATH = "results.tcss"
    HELP = """Every stored run, newest first, including those of other ggbench processes on this machine.
✓ completed   … running   – cancelled   ✗ failed: see the outcome and note columns to the right
enter opens a run; space marks it; c compares the marked runs."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "compare", "Compare"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("s", "sort_next", "Sort"),
        Binding("S", "reverse_sort", "Reverse the sort order", show=False),
        Binding("y", "copy_command", "Copy", tooltip="Copy the commands that repeat the runs"),
        Binding("w", "save", "Save"),
        Binding("d", "delete", "Delete"),
        Binding("r", "reload", "Reload", show=False),
        Binding("escape", "leave_filter", "Leave or clear the filter", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._runs: tuple[ListedRun, ...] = ()
        self._sorted_by: RunColumn = COLUMNS_OF_RUNS[0]
        self._falling = True
        self._error: GgbenchError | None = None
        self._has_read = False

    def compose(self) -> ComposeResult:
        """Lay out the filter, the count, the runs or why there are none, and the status message."""
        yield Input(
            id="filter",
            placeholder="filter by model, quant, source, state, date; words in any order",
            compact=True,
            classes="-off",
        )
        yield Static(id="count", markup=False)
        yield Static("Reading the results…", id="nothing", markup=False)
        yield RunsTable(id="runs", classes="-off")
        yield StatusMessage(id="message")
        yield Footer(compact=True, show_command_palette=False)

    @on(ScreenResume)
    def read_on_return(self) -> None:
        """Read the store again: another screen or another ggbench may have changed it."""
        self._read()

    @on(RunStored)
    def read_new_run(self, event: RunStored) -> None:
        """Read the store again, keeping cursor, marks and filter."""
        event.stop()
        self._read()

    def action_reload(self) -> None:
        """Read the store again, after an error or for the runs of another ggbench."""
        self._read()

    def action_filter(self) -> None:
        """Open the filter."""
        if self._runs:
            field = self.query_one("#filter", Input)
            field.remove_class("-off")
            # Immediate, unlike `focus()`: letters typed right after belong to the filter.
            self.set_focus(field)

    def action_leave_filter(self) -> None:
        """Go from the filter to the list; in the list, or if it is empty, clear the filter and the message."""
        field, table = self.query_one("#filter", Input), self.query_one(RunsTable)
        if not field.has_focus or not table.runs:
            field.value = ""
            self.query_one(StatusMessage).clear()
        # Immediate: a key pressed right after applies to the filtered list.
        self._show()
        field.set_class(not field.value, "-off")
        self.set_focus(table)

    @on(Input.Changed, "#filter")
    def filter_runs(self) -> None:
        """Filter while typing."""
        self._show()

    @on(Input.Submitted, "#filter")
    def leave_filter(self) -> None:
        """Focus the list, keeping the filter."""
        self.action_leave_filter()

    def action_sort_next(self) -> None:
        """Sort by the next column."""
        keys = [column.key for column in COLUMNS_OF_RUNS]
        self._sort_by(COLUMNS_OF_RUNS[(keys.index(self._sorted_by.key) + 1) % len(keys)])

    def action_reverse_sort(self) -> None:
        """Reverse the sort order."""
        self._sort_by(self._sorted_by)

    @on(RunsTable.HeaderClicked)
    def sort_by_header(self, event: RunsTable.HeaderClicked) -> None:
        """Sort by the clicked column; a second click reverses the order."""
        self._sort_by(event.column)

    @on(RunsTable.MarksChanged)
    def count_marks(self) -> None:
        """Update the count; marks persist when a filter hides their runs."""
        self._show_count()

    @on(RunsTable.Chosen)
    def open_run(self, event: RunsTable.Chosen) -> None:
        """Open a run in full."""
        self._read_measured((event.run,))

    def action_compare(self) -> None:
        """Compare the marked runs side by side."""
        marked = self._marked()
        if len(marked) < 2:
            self.query_one(StatusMessage).show("Mark two or more runs with space, then press c.")
        else:
            self._read_measured(marked)

    def action_copy_command(self) -> None:
        """Copy the commands that repeat the marked runs, or the chosen one."""
        if runs := self._marked() or self._chosen():
            self.query_one(StatusMessage).copy_commands(*(run.stored.command for run in runs))

    def action_save(self) -> None:
        """Save the marked runs, or the chosen one."""
        runs = self._marked() or self._chosen()
        if not runs:
            return

        def save(form: SavedForm | None) -> None:
            if form is not None:
                self._save(runs, form)

        what = "\n".join([describe_runs(runs), *still_running(runs, "saved with the samples so far")])
        has_samples = any(is_running(run) or run.stored.n_samples for run in runs)
        self.app.push_screen(SaveChoice(what, has_samples=has_samples), save)

    def action_delete(self) -> None:
        """Delete the marked runs, or the chosen one, after a confirmation."""
        runs = self._marked() or self._chosen()
        if not runs:
            return
        samples = format_count(sum(run.stored.n_samples for run in runs))

        def delete(yes: bool | None) -> None:
            if yes:
                self._delete(tuple(run.run_id for run in runs))

        question = f"Delete {describe_runs(runs)} with {samples} samples? This cannot be undone."
        question = "\n".join([question, *still_running(runs, "it cannot be deleted before it ends")])
        self.app.push_screen(ConfirmScreen(question, "Delete"), delete)

    @on(_RunsRead)
    def show_runs(self, event: _RunsRead) -> None:
        """Show the runs that were read."""
        self._runs, self._error, self._has_read = event.runs, None, True
        self.query_one(RunsTable).keep_marks({run.run_id for run in event.runs})
        if event.notices:
            self.query_one(StatusMessage).show(*event.notices)
        self._show()

    @on(_ReadingFailed)
    def show_error(self, event: _ReadingFailed) -> None:
        """Show the error: as a message if runs are listed, else in their place."""
        self._error = event.error
        if self._runs:
            self.query_one(StatusMessage).show_error(event.error)
        self._show()

    @on(_MeasuredRead)
    def open_measured(self, event: _MeasuredRead) -> None:
        """Open one run in full, or several side by side."""
        if not self.is_current:
            return
        if len(event.runs) == 1:
            from ggbench.tui.screens.run_details import RunDetails

            self.app.push_screen(RunDetails(event.runs))
        else:
            from ggbench.tui.screens.compare import CompareScreen

            self.app.push_screen(CompareScreen(event.runs))

    @on(_Done)
    def show_outcome(self, event: _Done) -> None:
        """Show the outcome of a key."""
        if event.error is not None:
            self.query_one(StatusMessage).show_error(event.error)
        elif event.lines:
            self.query_one(StatusMessage).show(*event.lines)
        if event.store_changed:
            self._read()

    @on(Worker.StateChanged)
    def show_unexpected_error(self, event: Worker.StateChanged) -> None:
        """Report an unexpected error; it must not end the app, as runs may be in progress."""
        if event.state is WorkerState.ERROR:
            message = f"a bug in ggbench: {event.worker.error!r}"
            self.query_one(StatusMessage).show_error(
                GgbenchError(message, "please report it, with the steps before it")
            )

    def _chosen(self) -> tuple[ListedRun, ...]:
        run = self.query_one(RunsTable).cursor_run
        return () if run is None else (run,)

    def _marked(self) -> tuple[ListedRun, ...]:
        """The marked runs in the order of the list, including those that a filter hides."""
        marks = self.query_one(RunsTable).marks
        return tuple(run for run in self._ordered() if run.run_id in marks)

    def _ordered(self) -> tuple[ListedRun, ...]:
        return in_order(self._runs, self._sorted_by, falling=self._falling)

    def _sort_by(self, column: RunColumn) -> None:
        """Sort by a column, numbers in descending order first; the same column again reverses the order."""
        same = column.key == self._sorted_by.key
        self._falling = not self._falling if same else column.right_aligned
        self._sorted_by = column
        self._show()

    def _show(self) -> None:
        """Show the sorted and filtered list, or why it is empty."""
        words = self.query_one("#filter", Input).value
        shown = matching(self._ordered(), words)
        table, nothing = self.query_one(RunsTable), self.query_one("#nothing", Static)
        table.show(shown, self._sorted_by, falling=self._falling)
        had_focus = self.focused is None or self.focused is table
        # A class and not `display`, which would override the rule that hides everything in a small window.
        table.set_class(not shown, "-off")
        nothing.set_class(bool(shown), "-off")
        if shown and had_focus:
            self.set_focus(table)
        nothing.update(Text(self._why_empty(words)))
        self._show_count()
        self.refresh_bindings()

    def _show_count(self) -> None:
        table = self.query_one(RunsTable)
        text = describe_list(self._runs, table.runs, table.marks, self._sorted_by, falling=self._falling)
        self.query_one("#count", Static).update(Text(text))

    def _why_empty(self, words: str) -> str:
        if self._error is not None and not self._runs:
            hint = f"\n{plain(self._error.hint)}" if self._error.hint else ""
            return f"✗ {plain(self._error.message)}{hint}\n\nPress r to try again."
        if self._runs:
            return f"No run matches “{plain(words)}”; esc clears the filter."
        return _NO_RUNS if self._has_read else "Reading the results…"

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Enable keys that need a run only if there is one."""
        if action in ("compare", "filter", "sort_next", "reverse_sort", "copy_command", "save", "delete"):
            return bool(self._runs)
        return True

    @work(thread=True, exclusive=True, group="list", exit_on_error=False)
    def _read(self) -> None:
        """Read all runs; a newer worker replaces this one."""
        known = {run.run_id: run for run in self._runs}
        worker = get_current_worker()
        answer: Message
        try:
            with host_of(self).services.open_store() as store:
                answer = _RunsRead(read_runs(store, known), store.notices)
        except GgbenchError as error:
            answer = _ReadingFailed(error)
        if not worker.is_cancelled:
            self.post_message(answer)

    @work(thread=True, exclusive=True, group="open", exit_on_error=False)
    def _read_measured(self, runs: Sequence[ListedRun]) -> None:
        """Read the samples of the runs to open; the latest request wins."""
        worker = get_current_worker()
        answer: Message
        try:
            answer = _MeasuredRead(comparable(self._load(runs)))
        except GgbenchError as error:
            answer = _Done(error=error, store_changed=isinstance(error, StoreError))
        if not worker.is_cancelled:
            self.post_message(answer)

    @work(thread=True, group="save", exit_on_error=False)
    def _save(self, runs: Sequence[ListedRun], form: SavedForm) -> None:
        """Read the samples and write the files."""
        answer: Message
        try:
            paths = save_runs([one.to_save() for one in self._load(runs)], form, Path.cwd())
            answer = _Done(tuple(f"Saved {path}" for path in paths))
        except GgbenchError as error:
            answer = _Done(error=error, store_changed=isinstance(error, StoreError))
        self.post_message(answer)

    @work(thread=True, group="delete", exit_on_error=False)
    def _delete(self, run_ids: Sequence[int]) -> None:
        """Delete runs; those that another ggbench has deleted already are skipped."""
        answer: Message
        try:
            with host_of(self).services.open_store() as store:
                problems = delete_runs(store, run_ids)
            n_deleted = len(run_ids) - len(problems)
            answer = _Done((*problems, *([f"Deleted {count_text(n_deleted)}."] if n_deleted else [])), None, True)
        except GgbenchError as error:
            answer = _Done(error=error)
        self.post_message(answer)

    def _load(self, runs: Sequence[ListedRun]) -> tuple[MeasuredRun, ...]:
        with host_of(self).services.open_store() as store:
            return tuple(read_measured(store, run.run_id) for run in runs)
