"""The Results screen: every run in the store, to sort, filter, mark, open, compare, save and delete.

The store is read in threads, each with a store of its own, and may be changed by another ggbench at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, cast

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
from ggbench.report.saving import SavedForm, save_runs
from ggbench.tui.messages import RunStored
from ggbench.tui.screens.confirm import ConfirmScreen
from ggbench.tui.screens.save_choice import SaveChoice
from ggbench.tui.stored_runs import (
    COLUMNS_OF_RUNS,
    MeasuredRun,
    RunColumn,
    StoredRun,
    count_text,
    delete_runs,
    describe_list,
    describe_runs,
    in_order,
    matching,
    read_measured,
    read_runs,
    still_running,
)
from ggbench.tui.widgets.runs_table import RunsTable
from ggbench.tui.widgets.told import Told
from ggbench.units import format_count

if TYPE_CHECKING:
    from ggbench.tui.services import Services

_NO_RUNS = """Nothing was measured yet.

Choose a model in the Library (1), mark variants with space and press b.
Its runs appear here; mark two with space and press c to compare them."""


class _Host(Protocol):
    """What this screen needs of its app."""

    services: Services


@dataclass
class _RunsRead(Message):
    """A thread has read the store."""

    runs: tuple[StoredRun, ...]
    notices: tuple[str, ...]


@dataclass
class _ReadingFailed(Message):
    """A thread could not read the list of runs."""

    error: GgbenchError


@dataclass
class _MeasuredRead(Message):
    """A thread has read the samples of runs that a person wants to see."""

    runs: tuple[MeasuredRun, ...]


@dataclass
class _Done(Message):
    """A thread has something to tell."""

    lines: tuple[str, ...] = ()
    error: GgbenchError | None = None
    store_changed: bool = False


class ResultsScreen(Screen[None]):
    """All runs, newest first."""

    AUTO_FOCUS = ""
    CSS_PATH = "results.tcss"
    HELP = """Every run in the store, newest first, also those of other ggbench on this machine.
✓ completed   … running   – ended by a person   ✗ see its outcome and note, further to the right
enter opens a run; space marks, c compares what is marked."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "compare", "Compare"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("s", "sort_next", "Sort"),
        Binding("S", "sort_back", "Turn the order", show=False),
        Binding("y", "copy_command", "Copy"),
        Binding("w", "save", "Save"),
        Binding("d", "delete", "Delete"),
        Binding("r", "read_again", "Read again", show=False),
        Binding("escape", "leave_filter", "Leave the filter, or clear it", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._runs: tuple[StoredRun, ...] = ()
        self._sorted_by: RunColumn = COLUMNS_OF_RUNS[0]
        self._falling = True
        self._error: GgbenchError | None = None
        self._has_read = False

    def compose(self) -> ComposeResult:
        """A filter, a line that counts, the runs or why there are none, and what came of the last key."""
        yield Input(
            id="filter", placeholder="model, quant, state, date; words in any order", compact=True, classes="-off"
        )
        yield Static(id="count", markup=False)
        yield Static("Reading the results…", id="nothing", markup=False)
        yield RunsTable(id="runs", classes="-off")
        yield Told(id="told")
        yield Footer(compact=True, show_command_palette=False)

    @on(ScreenResume)
    def read_on_return(self) -> None:
        """Another screen, or another ggbench, may have changed the store meanwhile."""
        self._read()

    @on(RunStored)
    def read_new_run(self, event: RunStored) -> None:
        """Cursor, marks and filter stay."""
        event.stop()
        self._read()

    def action_read_again(self) -> None:
        """After an error, or for the runs of another ggbench."""
        self._read()

    def action_filter(self) -> None:
        """Type to filter."""
        if self._runs:
            field = self.query_one("#filter", Input)
            field.remove_class("-off")
            # At once, unlike `focus()`: letters that follow in the same breath are for the filter.
            self.set_focus(field)

    def action_leave_filter(self) -> None:
        """From the filter to the list; there, or where the list is empty, take off the filter and what was told."""
        field, table = self.query_one("#filter", Input), self.query_one(RunsTable)
        if not field.has_focus or not table.runs:
            field.value = ""
            self.query_one(Told).tell()
        # At once: a key that follows in the same breath is for what the filter leaves.
        self._show()
        field.set_class(not field.value, "-off")
        self.set_focus(table)

    @on(Input.Changed, "#filter")
    def filter_runs(self) -> None:
        """As it is typed."""
        self._show()

    @on(Input.Submitted, "#filter")
    def leave_filter(self) -> None:
        """The list gets the keys; the filter stays."""
        self.action_leave_filter()

    def action_sort_next(self) -> None:
        """Sort by the next column."""
        keys = [column.key for column in COLUMNS_OF_RUNS]
        self._sort_by(COLUMNS_OF_RUNS[(keys.index(self._sorted_by.key) + 1) % len(keys)])

    def action_sort_back(self) -> None:
        """Turn the order around."""
        self._sort_by(self._sorted_by)

    @on(RunsTable.HeaderClicked)
    def sort_by_header(self, event: RunsTable.HeaderClicked) -> None:
        """A second click turns the order around."""
        self._sort_by(event.column)

    @on(RunsTable.MarksChanged)
    def count_marks(self) -> None:
        """Marks stay when a filter hides their runs."""
        self._show_count()

    @on(RunsTable.Chosen)
    def open_run(self, event: RunsTable.Chosen) -> None:
        """In full, with its curve."""
        self._read_measured((event.run,))

    def action_compare(self) -> None:
        """The marked runs side by side."""
        marked = self._marked()
        if len(marked) < 2:
            self.query_one(Told).tell("Mark two runs or more with space, then press c.")
        else:
            self._read_measured(marked)

    def action_copy_command(self) -> None:
        """The lines that measure the marked runs again, or the chosen one: copied, and here to select by hand."""
        if runs := self._marked() or self._chosen():
            self.query_one(Told).offer(*(run.summary.command for run in runs))

    def action_save(self) -> None:
        """The marked runs, or the chosen one."""
        runs = self._marked() or self._chosen()
        if not runs:
            return

        def save(form: SavedForm | None) -> None:
            if form is not None:
                self._save(runs, form)

        what = "\n".join([describe_runs(runs), *still_running(runs, "saved as far as it is")])
        has_samples = any(run.is_running or run.summary.n_samples for run in runs)
        self.app.push_screen(SaveChoice(what, has_samples=has_samples), save)

    def action_delete(self) -> None:
        """The marked runs, or the chosen one, once a person has said yes."""
        runs = self._marked() or self._chosen()
        if not runs:
            return
        samples = format_count(sum(run.summary.n_samples for run in runs))

        def delete(yes: bool | None) -> None:
            if yes:
                self._delete(tuple(run.run_id for run in runs))

        question = f"Delete {describe_runs(runs)} with {samples} samples? This cannot be undone."
        question = "\n".join([question, *still_running(runs, "stays until it has ended")])
        self.app.push_screen(ConfirmScreen(question, "Delete"), delete)

    @on(_RunsRead)
    def show_runs(self, event: _RunsRead) -> None:
        """What the store holds."""
        self._runs, self._error, self._has_read = event.runs, None, True
        self.query_one(RunsTable).keep_marks({run.run_id for run in event.runs})
        if event.notices:
            self.query_one(Told).tell(*event.notices)
        self._show()

    @on(_ReadingFailed)
    def show_error(self, event: _ReadingFailed) -> None:
        """In place of the runs; beside them where some were read before."""
        self._error = event.error
        if self._runs:
            self.query_one(Told).tell_error(event.error)
        self._show()

    @on(_MeasuredRead)
    def open_measured(self, event: _MeasuredRead) -> None:
        """One run in full, or several side by side."""
        if not self.is_current:
            return
        if len(event.runs) == 1:
            from ggbench.tui.screens.run_details import RunDetails

            self.app.push_screen(RunDetails(event.runs))
        else:
            from ggbench.tui.screens.compare import CompareScreen

            self.app.push_screen(CompareScreen(event.runs))

    @on(_Done)
    def tell(self, event: _Done) -> None:
        """What came of a key."""
        if event.error is not None:
            self.query_one(Told).tell_error(event.error)
        elif event.lines:
            self.query_one(Told).tell(*event.lines)
        if event.store_changed:
            self._read()

    @on(Worker.StateChanged)
    def tell_fault(self, event: Worker.StateChanged) -> None:
        """What nobody foresaw costs what was asked for, and no run that goes on behind this screen."""
        if event.state is WorkerState.ERROR:
            fault = f"a fault in ggbench: {event.worker.error!r}"
            self.query_one(Told).tell_error(GgbenchError(fault, "please report it with what you did before"))

    def _chosen(self) -> tuple[StoredRun, ...]:
        run = self.query_one(RunsTable).cursor_run
        return () if run is None else (run,)

    def _marked(self) -> tuple[StoredRun, ...]:
        """In the order of the list, those that a filter hides among them."""
        marks = self.query_one(RunsTable).marks
        return tuple(run for run in self._ordered() if run.run_id in marks)

    def _ordered(self) -> tuple[StoredRun, ...]:
        return in_order(self._runs, self._sorted_by, falling=self._falling)

    def _sort_by(self, column: RunColumn) -> None:
        """By a new column, numbers from the largest; by the same one again, the other way."""
        same = column.key == self._sorted_by.key
        self._falling = not self._falling if same else column.right_aligned
        self._sorted_by = column
        self._show()

    def _show(self) -> None:
        """The list as it is sorted and filtered, or what to do where it is empty."""
        words = self.query_one("#filter", Input).value
        shown = matching(self._ordered(), words)
        table, nothing = self.query_one(RunsTable), self.query_one("#nothing", Static)
        table.show(shown, self._sorted_by, falling=self._falling)
        had_keys = self.focused is None or self.focused is table
        # By a class and not by `display`, which would win over the rule that hides all in a window too small.
        table.set_class(not shown, "-off")
        nothing.set_class(bool(shown), "-off")
        if shown and had_keys:
            self.set_focus(table)
        nothing.update(Text(self._why_empty(words)))
        self._show_count()
        self.refresh_bindings()

    def _show_count(self) -> None:
        table = self.query_one(RunsTable)
        told = describe_list(self._runs, table.runs, table.marks, self._sorted_by, falling=self._falling)
        self.query_one("#count", Static).update(Text(told))

    def _why_empty(self, words: str) -> str:
        if self._error is not None and not self._runs:
            hint = f"\n{plain(self._error.hint)}" if self._error.hint else ""
            return f"✗ {plain(self._error.message)}{hint}\n\nr reads it again."
        if self._runs:
            return f"No run has “{plain(words)}”; esc takes the filter off."
        return _NO_RUNS if self._has_read else "Reading the results…"

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that need a run are shown where there is one."""
        if action in ("compare", "filter", "sort_next", "sort_back", "copy_command", "save", "delete"):
            return bool(self._runs)
        return True

    @work(thread=True, exclusive=True, group="list", exit_on_error=False)
    def _read(self) -> None:
        """All runs; a newer reading makes this one stale."""
        known = {run.run_id: run for run in self._runs}
        worker = get_current_worker()
        answer: Message
        try:
            with cast("_Host", self.app).services.open_store() as store:
                answer = _RunsRead(read_runs(store, known), store.notices)
        except GgbenchError as error:
            answer = _ReadingFailed(error)
        if not worker.is_cancelled:
            self.post_message(answer)

    @work(thread=True, exclusive=True, group="open", exit_on_error=False)
    def _read_measured(self, runs: Sequence[StoredRun]) -> None:
        """Samples of the runs to open; the latest wish wins."""
        worker = get_current_worker()
        answer: Message
        try:
            answer = _MeasuredRead(self._load(runs))
        except GgbenchError as error:
            answer = _Done(error=error, store_changed=isinstance(error, StoreError))
        if not worker.is_cancelled:
            self.post_message(answer)

    @work(thread=True, group="save", exit_on_error=False)
    def _save(self, runs: Sequence[StoredRun], form: SavedForm) -> None:
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
        """Those that another ggbench has deleted meanwhile are just gone."""
        answer: Message
        try:
            with cast("_Host", self.app).services.open_store() as store:
                problems = delete_runs(store, run_ids)
            n_deleted = len(run_ids) - len(problems)
            answer = _Done((*problems, *([f"Deleted {count_text(n_deleted)}."] if n_deleted else [])), None, True)
        except GgbenchError as error:
            answer = _Done(error=error)
        self.post_message(answer)

    def _load(self, runs: Sequence[StoredRun]) -> tuple[MeasuredRun, ...]:
        with cast("_Host", self.app).services.open_store() as store:
            return tuple(read_measured(store, run) for run in runs)
