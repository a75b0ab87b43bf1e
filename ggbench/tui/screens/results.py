"""The Results screen: every stored run, to sort, filter, mark, open, compare, save and delete.

The store is read in threads, each with its own connection, and another ggbench may change it at any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import ScreenResume
from textual.widgets import Footer, Input, Static

from ggbench.decisions.compare.estimates import Repeats, stored_repeats
from ggbench.errors import GgbenchError, StoreError
from ggbench.show.listed_runs import ListedRun
from ggbench.text import sanitize
from ggbench.tui.host import RunStored, host_of
from ggbench.tui.screens.dialogs import ConfirmScreen
from ggbench.tui.screens.task_screen import RunsScreen
from ggbench.tui.stored_runs import (
    MeasuredRun,
    delete_runs,
    describe_runs,
    may_draw,
    read_measured,
    read_runs,
    still_running,
)
from ggbench.tui.widgets.bars import StatusMessage
from ggbench.tui.widgets.runs_table import RunsTable
from ggbench.units import counted, format_count

_NO_RUNS = """No runs yet.

Choose a model in the Library (1), mark quants with space and press b.
Their runs appear here; mark two with space and press c to compare them."""


class ResultsScreen(RunsScreen):
    """The list of stored runs, newest first."""

    AUTO_FOCUS = ""
    CSS_PATH = "results.tcss"
    HELP = """Every stored run, newest first, including those of other ggbench processes on this machine.
✓ completed   ! not steady   … running   – cancelled   ✗ failed: see the outcome and note columns to the right
enter opens a run; space marks it; c compares the marked runs."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "compare", "Compare", tooltip="Compare the marked runs side by side"),
        Binding("slash", "filter", "Filter", key_display="/", tooltip="Filter by words of model, quant, state or date"),
        Binding("s", "sort_next", "Sort", tooltip="Sort by the next column"),
        Binding("S", "reverse_sort", "Reverse the sort order", show=False),
        Binding("y", "copy_command", "Copy", tooltip="Copy the commands that repeat the runs"),
        Binding("w", "save", "Save", tooltip="Save the marked runs, or the chosen one, as HTML, CSV or SVG"),
        Binding("d,delete", "delete", "Delete", tooltip="Delete the marked runs, or the chosen one; asks first"),
        Binding("r", "reload", "Reload", show=False, tooltip="Read the stored runs again"),
        Binding("escape", "leave_filter", "Clear the filter", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._runs: tuple[ListedRun, ...] = ()
        self._has_read = False

    def compose(self) -> ComposeResult:
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

    def action_reload(self) -> None:
        """Read the store again, after an error or for the runs of another ggbench."""
        self._read()

    def action_filter(self) -> None:
        if self._runs:
            field = self.query_one("#filter", Input)
            field.remove_class("-off")
            # Immediate, unlike `focus()`: letters typed right after belong to the filter.
            self.set_focus(field)

    def action_leave_filter(self) -> None:
        self.query_one("#filter", Input).value = ""
        self.status.clear()
        self._to_list()

    @on(Input.Submitted, "#filter")
    def _to_list(self) -> None:
        """Go from the filter to the list; a filter that matches no run is cleared."""
        field, table = self.query_one("#filter", Input), self._table
        if not table.runs:
            field.value = ""
        # Immediate: a key pressed right after applies to the filtered list.
        self._show()
        field.set_class(not field.value, "-off")
        self.set_focus(table)

    def action_sort_next(self) -> None:
        self._table.order.sort_by_next()
        self._table.show_sorted()

    def action_reverse_sort(self) -> None:
        self._table.order.reverse()
        self._table.show_sorted()

    @on(RunsTable.Changed)
    def _show_count(self) -> None:
        self.query_one("#count", Static).update(Text(self._table.summary))

    @on(RunsTable.Chosen)
    def _open_run(self, event: RunsTable.Chosen) -> None:
        self._open((event.run,))

    def action_compare(self) -> None:
        marked = self._table.marked
        if len(marked) < 2:
            self.status.show("Mark two or more runs with space, then press c.")
        else:
            self._open(marked)

    def action_copy_command(self) -> None:
        if runs := self._selected:
            self.status.copy_commands(*(run.stored.command for run in runs))

    def action_save(self) -> None:
        if runs := self._selected:
            what = "\n".join([describe_runs(runs), *still_running(runs, "saved with the samples so far")])
            has_figures = any(map(may_draw, runs))
            self.ask_to_save(what, lambda: self._load(runs), has_figures=has_figures)

    def action_delete(self) -> None:
        runs = self._selected
        if not runs:
            return

        def delete(yes: bool | None) -> None:
            if yes:
                run_ids = [run.run_id for run in runs]
                self.perform(f"delete {run_ids}", lambda: self._delete(run_ids), self._show_deleted)

        samples = format_count(sum(run.stored.n_samples for run in runs))
        question = f"Delete {describe_runs(runs)} with {samples} samples? This cannot be undone."
        question = "\n".join([question, *still_running(runs, "it cannot be deleted before it ends")])
        self.app.push_screen(ConfirmScreen(question, "Delete"), delete)

    def show_failure(self, task: str, error: GgbenchError) -> None:
        """Show the error; if the list could not be read and is empty, in its place."""
        if task == "list":
            self._show()
        elif isinstance(error, StoreError):
            self._read()  # the store differs from what is listed
        if task != "list" or self._runs:
            super().show_failure(task, error)

    @on(ScreenResume)
    @on(RunStored)
    def _read(self) -> None:
        """Read the store again: another screen or another ggbench may have changed it."""
        known = {run.run_id: run for run in self._runs}

        def read() -> Iterator[tuple[tuple[ListedRun, ...], tuple[str, ...]]]:
            with host_of(self).services.open_store() as store:
                yield read_runs(store, known), store.notices

        self.perform("list", read, self._show_read)

    def _show_read(self, read: tuple[tuple[ListedRun, ...], tuple[str, ...]]) -> None:
        self._runs, notices = read
        self._has_read = True
        if notices:
            self.status.show(*notices)
        self._show()

    def _load(self, runs: Sequence[ListedRun]) -> tuple[MeasuredRun, ...]:
        with host_of(self).services.open_store() as store:
            return tuple(read_measured(store, run.run_id) for run in runs)

    def _open(self, runs: Sequence[ListedRun]) -> None:
        """Open one run in full, or several side by side."""

        def read() -> Iterator[tuple[tuple[MeasuredRun, ...], Repeats]]:
            measured = self._load(runs)
            repeats: Repeats = ()
            if len(measured) > 1:
                _ = [run.summary for run in measured]  # each can be read, or this raises why not
                with host_of(self).services.open_store() as store:
                    repeats = stored_repeats(store)
            yield measured, repeats

        self.perform("open", read, self._show_measured)

    def _show_measured(self, read: tuple[tuple[MeasuredRun, ...], Repeats]) -> None:
        runs, repeats = read
        if self.is_current:
            from ggbench.tui.screens.measured_runs import CompareScreen, RunDetails

            self.app.push_screen(RunDetails(runs[0]) if len(runs) == 1 else CompareScreen(runs, repeats))

    def _delete(self, run_ids: Sequence[int]) -> Iterator[tuple[str, ...]]:
        """Delete runs, in a thread; those that another ggbench has deleted already are skipped."""
        with host_of(self).services.open_store() as store:
            problems = delete_runs(store, run_ids)
        n_deleted = len(run_ids) - len(problems)
        yield (*problems, *([f"Deleted {counted(n_deleted, 'run')}."] if n_deleted else []))

    def _show_deleted(self, lines: tuple[str, ...]) -> None:
        self.status.show(*lines)
        self._read()

    @property
    def _table(self) -> RunsTable:
        return self.query_one(RunsTable)

    @property
    def _selected(self) -> tuple[ListedRun, ...]:
        """The marked runs, else the one at the cursor."""
        run = self._table.cursor_run
        return self._table.marked or (() if run is None else (run,))

    @on(Input.Changed, "#filter")
    def _show(self) -> None:
        """Show the sorted and filtered list, or why it is empty."""
        words = self.query_one("#filter", Input).value
        table, nothing = self._table, self.query_one("#nothing", Static)
        table.show(self._runs, words)
        shown = bool(table.runs)
        had_focus = self.focused is None or self.focused is table
        # A class and not `display`, which would override the rule that hides everything in a small window.
        table.set_class(not shown, "-off")
        nothing.set_class(shown, "-off")
        if shown and had_focus:
            self.set_focus(table)
        nothing.update(Text(self._why_empty(words)))
        self._show_count()
        self.refresh_bindings()

    def _why_empty(self, words: str) -> str:
        if (error := self.problems.get("list")) is not None and not self._runs:
            hint = f"\n{sanitize(error.hint)}" if error.hint else ""
            return f"✗ {sanitize(error.message)}{hint}\n\nPress r to try again."
        if self._runs:
            return f"No run matches “{sanitize(words)}”; esc clears the filter."
        return _NO_RUNS if self._has_read else "Reading the results…"

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("compare", "filter", "sort_next", "reverse_sort", "copy_command", "save", "delete"):
            return bool(self._runs)
        return True
