"""The Results screen: all stored runs, to sort, filter, mark, open, compare, save and delete.

Threads read the store, each with its own connection, and another ggbench may change it at any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import ScreenResume
from textual.timer import Timer
from textual.widgets import Input, Static

from ggbench.decisions.compare.estimates import Repeats, stored_repeats
from ggbench.errors import GgbenchError, StoreError, UnknownName, UsageError
from ggbench.runs.experiment import Job, experiment_of
from ggbench.runs.run import Run
from ggbench.runs.store.runs import RUNNING, DeletedRun
from ggbench.show.listed_runs import ListedRun, SavedRun
from ggbench.show.names import quant_name
from ggbench.text import sanitize
from ggbench.tui.host import RunsOpened, RunStored, host_of
from ggbench.tui.screens.dialogs import ConfirmScreen
from ggbench.tui.screens.measured import MeasuredScreen, RunsScreen
from ggbench.tui.stored_runs import MOST_LISTED, describe_runs, may_draw, read_runs
from ggbench.tui.widgets.bars import KeysFooter, StatusMessage
from ggbench.tui.widgets.runs_table import RunsTable
from ggbench.units import counted, format_count

_PAUSE_S = 0.2
"""Time without a letter after which older runs are looked for."""
_NO_RUNS = """No runs yet.

Choose a model in the Library (1), mark quants with space and press b.
Their runs appear here; mark two with space and press c to compare them."""


class ResultsScreen(RunsScreen):
    """The list of stored runs by model, newest first."""

    AUTO_FOCUS = ""
    CSS_PATH = "results.tcss"
    HELP = f"""All stored runs by model, newest first, including those of other ggbench processes on this machine.
Of more than {MOST_LISTED:,} runs the newest are listed; / finds older ones by model, quant, source, kind, state, date.
✓ completed   ! not steady   … running   – cancelled   ✗ failed: see the outcome and note columns to the right
enter opens a run; space marks it; c compares the marked runs.
d deletes the run at the cursor, D the marked runs after a question; u restores them until ggbench exits."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "compare", "Compare", tooltip="Compare the marked runs side by side"),
        Binding(
            "slash",
            "filter",
            "Filter",
            key_display="/",
            tooltip="Filter by words of model, kind, outcome or date",
        ),
        Binding("s", "sort_next", "Sort", show=False, tooltip="Sort by the next column"),
        Binding("S", "reverse_sort", "Reverse the sort", show=False, tooltip="Reverse the sort order"),
        Binding("d,delete", "delete('cursor')", "Delete", tooltip="Delete the run at the cursor; u undoes that"),
        Binding("u", "undo", "Undo", tooltip="Undo the last deletion, until ggbench exits"),
        Binding("w", "save", "Save", tooltip="Save the marked runs, or the chosen one, as HTML, CSV or SVG"),
        Binding("y", "copy_command", "Copy", tooltip="Copy the commands that repeat the runs"),
        Binding("D", "delete('marked')", "Delete marked", tooltip="Delete the marked runs; u undoes that"),
        Binding("r", "reload", "Reload", show=False, tooltip="Read the stored runs again"),
        Binding("escape", "leave", "Clear", show=False, tooltip="Clear the filter, or unmark all runs"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._runs: Sequence[ListedRun] = ()
        self._n_stored = 0
        """Number of runs in the store, of which the oldest may not be listed."""
        self._has_read = False
        self._search: Timer | None = None
        self._searched = ""
        """The words last looked for among older runs."""
        self._deleted: list[list[DeletedRun]] = []
        """Runs removed by each deletion of this session, latest last."""
        self._repeated: set[int] = set()
        """Items of the run queue whose runs are marked when they are listed."""
        self._restored: int | None = None
        """The run to move the cursor to once it is listed again."""

    def compose(self) -> ComposeResult:
        yield Input(
            id="filter",
            placeholder="filter by model, quant, kind, source, outcome, date; words in any order",
            compact=True,
            classes="-off",
        )
        yield Static(id="count", markup=False)
        yield Static("Reading the results…", id="nothing", markup=False)
        yield RunsTable(id="runs", classes="-off")
        yield StatusMessage(id="message")
        yield KeysFooter()

    def action_filter(self) -> None:
        if self._runs:
            field = self.query_one("#filter", Input)
            field.remove_class("-off")
            # immediate, unlike `focus()`: letters typed right after belong to the filter
            self.set_focus(field)

    def action_leave(self) -> None:
        field = self.query_one("#filter", Input)
        self.drop("open")
        if not field.value and not field.has_focus:
            self._table.unmark()
        field.value = ""
        self.status.show()
        self._to_list()

    @on(Input.Submitted, "#filter")
    def _to_list(self) -> None:
        """Go from the filter to the list; a filter that matches no run is cleared."""
        field, table = self.query_one("#filter", Input), self._table
        if not table.runs and not self._has_older:
            field.value = ""
        # immediate: a key pressed right after applies to the filtered list
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
        self.query_one("#count", Static).update(self._table.summary)
        self.refresh_bindings()

    @on(RunsTable.Chosen)
    def _open_run(self, event: RunsTable.Chosen) -> None:
        self.open_runs([event.run.run_id])

    def action_compare(self) -> None:
        marked = self._table.marked
        running = [run for run in marked if run.stored.state == RUNNING]
        over = [run for run in marked if run not in running]

        def start(confirmed: bool | None) -> None:
            if confirmed:
                self.open_runs(sorted(run.run_id for run in over))  # which gives them the letters of the Run screen

        if len(marked) < 2:
            self.status.show("Mark two or more runs with space, then press c.")
        elif len(over) < 2:
            self.status.show(f"Nothing to compare yet; still in progress: {describe_runs(running)}.")
        elif running:
            question = f"Compare {describe_runs(over)} without {describe_runs(running)}, still in progress?"
            self.app.push_screen(ConfirmScreen(question, "Compare", is_harmless=True), start)
        else:
            start(confirmed=True)

    def action_copy_command(self) -> None:
        if runs := self._selected:
            self.status.copy_commands(*(run.stored.command for run in runs))

    def action_save(self) -> None:
        if runs := self._selected:
            running = [run.run_id for run in runs if run.stored.state == RUNNING]
            still = (f"\nRun {run_id} is still running: saved with the samples so far." for run_id in running)
            run_ids = [run.run_id for run in runs]
            self.ask_to_save(
                describe_runs(runs) + "".join(still), lambda: self._load(run_ids), has_figures=any(map(may_draw, runs))
            )

    def action_delete(self, what: Literal["cursor", "marked"]) -> None:
        """Delete the run at the cursor or, after a question, the marked ones; `action_undo` restores them."""
        cursor = self._table.cursor_run
        runs = self._table.marked if what == "marked" else [] if cursor is None else [cursor]

        def delete() -> Iterator[list[str]]:
            problems, deleted = [], []
            with host_of(self).services.open_store() as store:
                for run in runs:
                    try:
                        deleted.append(store.delete_run(run.run_id))
                    except UnknownName:
                        continue  # gone already
                    except GgbenchError as error:
                        problems.append("; ".join(filter(None, (error.message, error.hint))))
            if deleted:
                self._deleted.append(deleted)
                gone = {each.run_id for each in deleted}
                named = describe_runs([run for run in runs if run.run_id in gone])
                problems.append(f"Deleted {named}; u undoes it.")
            yield problems

        def start(confirmed: bool | None) -> None:
            if confirmed:
                self.perform(f"delete {[run.run_id for run in runs]}", delete, self._show_change)

        if len(runs) > 1:
            n_hidden = len({run.run_id for run in runs} - {run.run_id for run in self._table.runs})
            hidden = f", {format_count(n_hidden)} of them hidden by the filter" if n_hidden else ""
            n_samples = sum(run.stored.n_samples for run in runs)
            question = f"Delete {describe_runs(runs)}{hidden}, with {counted(n_samples, 'sample')}?"
            self.app.push_screen(ConfirmScreen(question, "Delete"), start)
        elif runs:
            start(confirmed=True)

    def action_undo(self) -> None:
        """Restore the runs deleted last.

        A run is deleted from the store at once and kept here in memory, so after a crash it stays deleted, as
        requested; a crash during the restore leaves it complete or deleted, never partial.
        """
        if not self._deleted:
            return
        deleted = self._deleted.pop()
        numbers = f"run{'' if len(deleted) == 1 else 's'} {', '.join(str(each.run_id) for each in deleted)}"

        def restore() -> Iterator[list[str]]:
            try:
                with host_of(self).services.open_store() as store:
                    for each in deleted:
                        store.restore_run(each)
            except Exception:
                self._deleted.append(deleted)  # to try again, e.g. when the disk has space
                raise
            self._restored = deleted[0].run_id
            yield [f"Restored {numbers}."]

        self.perform(f"restore {numbers}", restore, self._show_change)

    def _show_change(self, lines: Sequence[str]) -> None:
        self.status.show(*lines)
        self.action_reload()
        self.refresh_bindings()

    def show_failure(self, task: str, error: GgbenchError) -> None:
        """Show the error, in place of the list if it could not be read."""
        if task == "list":
            self._show()
        elif isinstance(error, StoreError | UnknownName):
            self.action_reload()  # the store differs from what is listed
        if task != "list" or self._runs:
            super().show_failure(task, error)

    @on(ScreenResume)
    @on(RunStored)
    def action_reload(self) -> None:
        """Read the store again, as another screen or another ggbench may have changed it."""
        known = {run.run_id: run for run in self._runs}
        words, marked = self.query_one("#filter", Input).value, self._table.marks

        def read() -> Iterator[tuple[Sequence[ListedRun], int, Sequence[str]]]:
            with host_of(self).services.open_store() as store:
                n_stored, *_ = store.count_runs()
                for runs in read_runs(store, known, words, marked):
                    yield runs, n_stored, store.notices

        def show(read: tuple[Sequence[ListedRun], int, Sequence[str]]) -> None:
            self._runs, self._n_stored, notices = read
            self._searched = words
            self._has_read = True
            for item in host_of(self).run_queue.items if self._repeated else ():
                if item.run_id is not None and item.id in self._repeated:
                    self._repeated.remove(item.id)
                    self._table.mark([item.run_id])
            if notices:
                self.status.show(*notices)
            self._show()
            if self._restored is not None:
                self._table.go_to_run(self._restored)
                self._restored = None

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

        def read() -> Iterator[tuple[list[SavedRun], Repeats]]:
            measured = self._load(run_ids)
            with host_of(self).services.open_store() as store:
                yield measured, stored_repeats(store, [[run.summary] for run in measured])

        def show(read: tuple[list[SavedRun], Repeats]) -> None:
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
                    raise UsageError(f"{quant_name(run.subject)} is not on this disk", "press p on it in the Library")
                jobs.append(Job(experiment_of(run.head.kind), target, run.head.setup, run.head.settings))
            yield jobs * n_times

        def start(jobs: Sequence[Job]) -> None:
            queue = host_of(self).run_queue
            n_before = len(queue.items)
            self._table.unmark()
            self._table.mark(kept)
            self._repeated.update(range(n_before, n_before + len(jobs)))
            queue.add(jobs)
            self.app.switch_mode("run")

        self.perform("repeat", find, start)

    @property
    def _table(self) -> RunsTable:
        return self.query_one(RunsTable)

    @property
    def _has_older(self) -> bool:
        """Whether older runs are stored than those listed."""
        return self._n_stored > len(self._runs)

    @property
    def _selected(self) -> Sequence[ListedRun]:
        """The marked runs, or the one at the cursor if none is marked."""
        run = self._table.cursor_run
        return self._table.marked or (() if run is None else (run,))

    @on(Input.Changed, "#filter")
    def _filter(self) -> None:
        """Filter the listed runs at once, and those in the store when nothing is typed for a moment."""
        self._show()
        if self._search is not None:
            self._search.stop()
        if self._has_older:
            self._search = self.set_timer(_PAUSE_S, self.action_reload)

    def _show(self) -> None:
        """Show the sorted and filtered list, or why it is empty."""
        words = self.query_one("#filter", Input).value
        table, nothing = self._table, self.query_one("#nothing", Static)
        table.show(self._runs, words, self._n_stored)
        shown = bool(table.runs)
        had_focus = self.focused is None or self.focused is table
        # a class, as `display` would override the rule that hides everything in a small window
        table.set_class(not shown, "-off")
        nothing.set_class(shown, "-off")
        if shown and had_focus:
            self.set_focus(table)
        nothing.update(Text(self._why_empty(words)))
        self._show_count()

    def _why_empty(self, words: str) -> str:
        if (error := self.problems.get("list")) is not None and not self._runs:
            hint = f"\n{sanitize(error.hint)}" if error.hint else ""
            return f"✗ {sanitize(error.message)}{hint}\n\nPress r to try again."
        if self._has_older and words != self._searched:
            return f"Looking for “{sanitize(words)}” in older runs…"
        if self._runs:
            return f"No run matches “{sanitize(words)}”; esc clears the filter."
        return _NO_RUNS if self._has_read else "Reading the results…"

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if parameters == ("marked",):
            return bool(self._table.marks) if self._runs else False
        if action in ("compare", "filter", "sort_next", "reverse_sort", "copy_command", "save", "delete"):
            return bool(self._runs)
        return action != "undo" or bool(self._deleted)
