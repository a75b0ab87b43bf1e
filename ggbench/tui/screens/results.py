"""The Results screen: all stored runs, to filter, mark, open, compare, save and delete.

Threads read the store, each with its own connection, and another ggbench may change it at any time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import ScreenResume
from textual.widgets import Input, Static

from ggbench.decisions.compare.comparison import Comparison, columns_of, compare_stored
from ggbench.errors import GgbenchError, UnknownName, UsageError
from ggbench.runs.experiment import Job, experiment_of
from ggbench.runs.run import Run
from ggbench.runs.store.runs import RUNNING
from ggbench.show.listed_runs import ListedRun, SavedRun
from ggbench.show.names import quant_name
from ggbench.text import sanitize
from ggbench.tui.host import RunsOpened, RunStored, host_of
from ggbench.tui.screens.dialogs import ConfirmScreen
from ggbench.tui.screens.measured import MeasuredScreen, RunsScreen
from ggbench.tui.stored_runs import MOST_LISTED, describe_runs, read_runs
from ggbench.tui.widgets.bars import KeysFooter, StatusMessage
from ggbench.tui.widgets.runs_table import RunsTable
from ggbench.units import counted

_NO_RUNS = """No runs yet.

Choose a model in the Library (1), mark quants with space and press b.
Their runs appear here; mark two with space and press c to compare them."""


class ResultsScreen(RunsScreen):
    """The list of stored runs by model, newest first."""

    AUTO_FOCUS = ""
    CSS_PATH = "results.tcss"
    HELP = f"""All stored runs by model, also those of other ggbench processes; of more than {MOST_LISTED:,} the newest.
✓ completed   ! not steady   … running   – cancelled   ✗ failed"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "compare", "Compare", tooltip="Compare the marked runs side by side"),
        Binding(
            "slash",
            "filter",
            "Filter",
            key_display="/",
            tooltip="Filter by words of model, kind, outcome or date",
        ),
        Binding("d,delete", "delete", "Delete", tooltip="Delete the marked runs, or the chosen one"),
        Binding("s", "save", "Save", tooltip="Save the marked runs, or the chosen one, as HTML, CSV or SVG"),
        Binding("y", "copy_command", "Copy", tooltip="Copy the commands that repeat the runs"),
        Binding("r", "reload", "Reload", show=False, tooltip="Read the stored runs again"),
        Binding("escape", "leave", "Clear", show=False, tooltip="Clear the filter, or unmark all runs"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._runs: Sequence[ListedRun] = ()
        self._has_read = False
        self._repeated: set[int] = set()
        """Items of the run queue whose runs are marked when they are listed."""

    def compose(self) -> ComposeResult:
        yield Input(
            id="filter",
            placeholder="filter by model, quant, kind, source, outcome, date; words in any order",
            compact=True,
        )
        yield Static(id="count", markup=False)
        yield Static("Reading the results…", id="nothing", markup=False)
        yield RunsTable(id="runs")
        yield StatusMessage(id="message")
        yield KeysFooter()

    def on_mount(self) -> None:
        self._filter_input.display = self._table.display = False

    def action_filter(self) -> None:
        self._filter_input.display = True
        self.set_focus(
            self._filter_input
        )  # immediate, unlike `focus()`: letters typed right after belong to it

    def action_leave(self) -> None:
        field = self._filter_input
        self.drop("open")
        if not field.value and not field.has_focus:
            self._table.mark(())
        field.value = ""
        self.status.show()
        self._to_list()

    @on(Input.Submitted, "#filter")
    def _to_list(self) -> None:
        """Go from the filter to the list."""
        self._show()
        self._filter_input.display = bool(self._filter_input.value)
        self.set_focus(self._table)

    @on(RunsTable.Changed)
    def _show_count(self) -> None:
        self.query_one("#count", Static).update(self._table.summary)
        self.refresh_bindings()

    @on(RunsTable.OptionSelected)
    def _open_run(self) -> None:
        if (run := self._table.chosen) is not None:
            self.open_runs([run.run_id])

    def action_compare(self) -> None:
        over = [run.run_id for run in self._table.marked if run.stored.state != RUNNING]
        if len(over) < 2:
            self.status.show("Mark two or more finished runs with space, then press c.")
        else:
            self.open_runs(sorted(over))  # which gives them the letters of the Run screen

    def action_copy_command(self) -> None:
        if runs := self._selected:
            self.status.copy_commands(*(run.stored.command for run in runs))

    def action_save(self) -> None:
        if runs := self._selected:
            run_ids = [run.run_id for run in runs]
            self.ask_to_save(describe_runs(runs), lambda: self._load(run_ids))

    def action_delete(self) -> None:
        """Delete the marked runs, or the one at the cursor, after a question."""
        runs = self._selected

        def delete() -> Iterator[list[str]]:
            with host_of(self).services.open_store() as store:
                for run in runs:
                    with contextlib.suppress(UnknownName):  # gone already
                        store.delete_run(run.run_id)
            yield [f"Deleted {describe_runs(runs)}."]

        def start(confirmed: bool | None) -> None:
            if confirmed:
                self.perform(f"delete {[run.run_id for run in runs]}", delete, self._show_change)

        if runs:
            n_samples = sum(run.stored.n_samples for run in runs)
            question = f"Delete {describe_runs(runs)}, with {counted(n_samples, 'sample')}?"
            self.app.push_screen(ConfirmScreen(question, "Delete"), start)

    def _show_change(self, lines: Sequence[str]) -> None:
        self.status.show(*lines)
        self.action_reload()
        self.refresh_bindings()

    def show_failure(self, task: str, error: GgbenchError) -> None:
        """Show the error, in place of the list if it could not be read."""
        if task == "list":
            self._show()
        else:
            self.action_reload()  # the store may differ from what is listed
        if task != "list" or self._runs:
            super().show_failure(task, error)

    @on(ScreenResume)
    @on(RunStored)
    def action_reload(self) -> None:
        """Read the store again, as another screen or another ggbench may have changed it."""
        known = {run.run_id: run for run in self._runs}

        def read() -> Iterator[tuple[Sequence[ListedRun], Sequence[str]]]:
            with host_of(self).services.open_store() as store:
                for runs in read_runs(store, known):
                    yield runs, store.notices

        def show(read: tuple[Sequence[ListedRun], Sequence[str]]) -> None:
            self._runs, notices = read
            self._has_read = True
            self._table.show(self._runs)
            for item in host_of(self).run_queue.items if self._repeated else ():
                if item.run_id is not None and item.id in self._repeated:
                    self._repeated.remove(item.id)
                    self._table.mark({*self._table.marks, item.run_id})
            if notices:
                self.status.show(*notices)
            self._show()

        self.perform("list", read, show)

    def _load(self, run_ids: Sequence[int]) -> list[SavedRun]:
        with host_of(self).services.open_store() as store:
            return [SavedRun.stored(store, store.load_run(run_id)) for run_id in run_ids]

    @on(RunsOpened)
    def _open_instead(self, message: RunsOpened) -> None:
        """Open runs in place of those that are open."""
        if isinstance(self.app.screen, MeasuredScreen):
            self.app.pop_screen()
        self.open_runs(message.run_ids)

    def open_runs(self, run_ids: Sequence[int]) -> None:
        """Open one run in full, or several side by side."""

        def read() -> Iterator[tuple[list[SavedRun], Comparison]]:
            measured = self._load(run_ids)
            with host_of(self).services.open_store() as store:
                yield measured, compare_stored(store, columns_of([run.summary for run in measured]))

        def show(read: tuple[list[SavedRun], Comparison]) -> None:
            if self.is_current:
                self.app.push_screen(MeasuredScreen(*read, self.measure_again))

        self.perform("open", read, show)

    def measure_again(self, runs: Sequence[Run], n_times: int, kept: Sequence[int]) -> None:
        """Queue the jobs of runs, in turns, and mark only the runs that they become and those that are kept."""
        services = host_of(self).services

        def find() -> Iterator[list[Job]]:
            jobs = []
            for run in runs:
                (target,) = services.resolve(run.subject.model, [run.subject.quant])
                if target.download_bytes:
                    raise UsageError(
                        f"{quant_name(run.subject)} is not on this disk", "press p on it in the Library"
                    )
                jobs.append(Job(experiment_of(run.head.kind), target, run.head.setup, run.head.settings))
            yield jobs * n_times

        def start(jobs: Sequence[Job]) -> None:
            queue = host_of(self).run_queue
            n_before = len(queue.items)
            self._table.mark(kept)
            self._repeated.update(range(n_before, n_before + len(jobs)))
            queue.add(jobs)
            self.app.switch_mode("run")

        self.perform("repeat", find, start)

    @property
    def _table(self) -> RunsTable:
        return self.query_one(RunsTable)

    @property
    def _filter_input(self) -> Input:
        return self.query_one("#filter", Input)

    @property
    def _selected(self) -> Sequence[ListedRun]:
        """The marked runs, or the one at the cursor if none is marked."""
        run = self._table.chosen
        return self._table.marked or (() if run is None else (run,))

    @on(Input.Changed, "#filter")
    def _show(self) -> None:
        """Show the sorted and filtered list, or why it is empty."""
        words, table, nothing = self._filter_input.value, self._table, self.query_one("#nothing", Static)
        table.words = words
        table.draw()
        had_focus = self.focused is None or self.focused is table
        table.display, nothing.display = bool(table.option_count), not table.option_count
        if table.option_count and had_focus:
            self.set_focus(table)
        nothing.update(Text(self._why_empty(words)))
        self._show_count()

    def _why_empty(self, words: str) -> str:
        if (error := self.problems.get("list")) is not None and not self._runs:
            hint = f"\n{sanitize(error.hint)}" if error.hint else ""
            return f"✗ {sanitize(error.message)}{hint}\n\nPress r to try again."
        if self._runs:
            return f"No run matches “{sanitize(words)}”; esc clears the filter."
        return _NO_RUNS if self._has_read else "Reading the results…"

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("compare", "filter", "copy_command", "save", "delete"):
            return bool(self._runs)
        return True
