"""The Results screen: all stored runs, to sort, filter, mark, open, compare, save and delete; and opened runs.

Threads read the store, each with its own connection, and another ggbench may change it at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal

from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.events import ScreenResume
from textual.timer import Timer
from textual.widgets import Input, Static

from ggbench.decisions.compare.comparison import Comparison, Tied, compare
from ggbench.decisions.compare.estimates import FEWEST_TURNS, Repeats, RunSpreads, stored_repeats
from ggbench.decisions.compare.report import ComparisonReport
from ggbench.decisions.compare.show import sentences_of
from ggbench.errors import GgbenchError, StoreError, UnknownName, UsageError
from ggbench.runs.comparable import setting_of
from ggbench.runs.experiment import Job, experiment_of
from ggbench.runs.run import Run
from ggbench.runs.store.runs import RUNNING, DeletedRun
from ggbench.show.listed_runs import ListedRun, SavedRun, saved_figures
from ggbench.show.names import model_name, quant_name
from ggbench.show.presenter import presenter_of
from ggbench.text import in_words, sanitize, shorten_middle
from ggbench.tui.host import RunsOpened, RunStored, TaskScreen, host_of
from ggbench.tui.screens.dialogs import ConfirmScreen, KeyHandled, ReportForm, SaveChoice
from ggbench.tui.stored_runs import MOST_LISTED, describe_runs, may_draw, read_runs
from ggbench.tui.widgets.bars import KeysFooter, StatusMessage, TooSmall
from ggbench.tui.widgets.curves_plot import CurvesPlot
from ggbench.tui.widgets.runs_table import RunsTable
from ggbench.units import counted, format_count

_COMPARE_HELP = """Runs of one file and setting are averaged. b measures all of them again, in turns.
★ marks the better value: the 95 % interval of the ratio excludes 1, and no run beats it.
The interval includes the variation between loads of the model with the same settings. Memory is exact and needs no
interval. Without intervals, the table names the larger or smaller value without ★. In the plot: samples as a band, ╌
the fitted line, · the memory bandwidth limit."""
_MOST_AGAIN = FEWEST_TURNS - 1
"""Most runs of each that `b` starts: with the present one, enough to be compared in turns beside other programs."""
_PAUSE_S = 0.2
"""Time without a letter after which older runs are looked for."""
_NO_RUNS = """No runs yet.

Choose a model in the Library (1), mark quants with space and press b.
Their runs appear here; mark two with space and press c to compare them."""


class RunsScreen(TaskScreen):
    """A screen of stored runs with a status message."""

    def ask_to_save(self, what: str, load: Callable[[], Sequence[SavedRun]], *, has_figures: bool) -> None:
        """Ask for the format and save the result of `load`, called in a thread; the question names `what`."""

        def ask(form: ReportForm | None) -> None:
            if form is not None:
                self.perform(f"save {what}", lambda: save(form), lambda lines: self.status.show(*lines))

        def save(form: ReportForm) -> Iterator[list[str]]:
            from ggbench.formats.report import save_report

            yield [f"Saved {path}" for path in save_report(load(), f".{form}", Path.cwd())]

        self.app.push_screen(SaveChoice(what, has_figures=has_figures), ask)

    def show_failure(self, task: str, error: GgbenchError) -> None:
        self.status.show_error(error)

    @property
    def status(self) -> StatusMessage:
        return self.query_one(StatusMessage)


class DetailsPane(VerticalScroll, can_focus=True):
    """Scrolls with j and k, like the lists."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", "Down", show=False),
        Binding("k", "scroll_up", "Up", show=False),
    ]


class MeasuredScreen(RunsScreen):
    """Curves above the details of one run, or above a comparison of several; esc returns to the Results screen."""

    AUTO_FOCUS = "DetailsPane"
    CSS_PATH = "results.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.pop_screen", "Back", tooltip="Back to the list of runs"),
        Binding("v", "next_plot", "Next plot", tooltip="Draw the next figure, such as KLD after PPL"),
        Binding("w", "save", "Save", tooltip="Save as HTML, CSV or SVG"),
        Binding("y", "copy_command", "Copy command", tooltip="Copy the command that repeats the run"),
        Binding("b", "measure_again", "Measure again", tooltip="Measure the runs again, in turns, and mark them all"),
        Binding("r", "reset_zoom", "Reset zoom", show=False, tooltip="Show all of a plot that was zoomed"),
    ]

    def __init__(
        self,
        runs: Sequence[SavedRun],
        repeats: Repeats,
        losses: Sequence[str],
        measure_again: Callable[[Sequence[Run], int], None],
    ) -> None:
        """`repeats` of all stored runs show the variation between loads; `losses` are the nats that each run's
        file loses, empty if unknown; `measure_again` takes the runs, and how often.
        """
        super().__init__()
        self.runs, self._repeats, self._losses, self._measure_again = runs, repeats, losses, measure_again
        self._n_again = 1
        """Runs of each that `b` adds."""
        self._is_one, self._numbers = len(runs) == 1, ", ".join(str(run.run_id) for run in runs)
        columns: dict[str, list[SavedRun]] = {}
        for run in runs:
            columns.setdefault(setting_of(run.summary.run), []).append(run)
        self._columns = list(columns.values()) if len(columns) > 1 else [[run] for run in runs]
        self._figures = saved_figures([column[0] for column in self._columns])
        self.HELP = "" if self._is_one else _COMPARE_HELP  # type: ignore[misc]

    def compose(self) -> ComposeResult:
        run = self.runs[0].summary.run
        presenter = presenter_of(run.head.kind)
        if self._is_one:
            started = sanitize(run.head.started_at[:16]).replace("T", " ")
            what = f"Run {self._numbers} · {sanitize(run.head.kind)} of"
            quant = f"{sanitize(run.subject.quant)} · {started} UTC"
            room = self.app.size.width - cell_len(f"  {what} {quant} ")
            title, answer = f"{what} {shorten_middle(model_name(run.subject), room)} {quant}", [presenter.ending(run)]
            details: RenderableType = presenter.details(run, folded=True, readings=self.runs[0].readings)
        else:
            columns = [[one.summary for one in column] for column in self._columns]
            comparison = compare(columns, RunSpreads(self._repeats))
            numbers = (", ".join(str(one.run_id) for one in column) for column in self._columns)
            is_joined = len(self._columns) < len(self.runs)
            title = f"Comparing runs {' with '.join(numbers) if is_joined else self._numbers}"
            speeds = [reason for line in comparison.stated for reason in line.reasons if line.concern == "speed"]
            n_more = (each.n_more for each in speeds if isinstance(each, Tied) and each.n_more)
            self._n_again = _MOST_AGAIN if comparison.unsteady else min(next(n_more, 1), _MOST_AGAIN)
            how = ("more runs of each (press b)", "press b to measure again") if self._may_repeat else ("", "")
            answer = [*sentences_of(comparison, *how), *filter(None, [self._loss_sentence(comparison)])]
            details = ComparisonReport(comparison, has_answer=False)
        yield Static(title, id="title", markup=False)
        with DetailsPane(id="pane"):
            yield Static("\n".join(answer), id="answer", markup=False)
            if self._figures:
                yield CurvesPlot()
            yield Static(details, id="details")
        yield StatusMessage()
        yield TooSmall()
        yield KeysFooter()

    def on_mount(self) -> None:
        for plot in self.query(CurvesPlot):
            plot.show(self._figures)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "copy_command":
            return self._is_one
        if action == "measure_again":
            return self._may_repeat
        return action != "next_plot" or len(self._figures) > 1

    @property
    def _may_repeat(self) -> bool:
        """Whether other runs of the same settings would be measured by the same jobs."""
        heads = [one.summary.run.head for one in self.runs]
        return all(
            (experiment := experiment_of(head.kind)).measures_speed and experiment.request_type is type(head.settings)
            for head in heads
        ) and not any(one.summary.run.is_imported for one in self.runs)

    def _loss_sentence(self, comparison: Comparison) -> str:
        """Return what is known of the files' quality; empty if it is compared, or there is only one file."""
        if any(line.concern == "quality" and len(line.compared) > 1 for line in comparison.lines):
            return ""
        places = [self.runs.index(column[0]) for column in self._columns]
        known = {
            name: nats
            for name, place in zip(comparison.short_names, places, strict=True)
            if (nats := self._losses[place])
        }
        if len(known) < 2:
            return ""
        is_typical = any(nats.startswith("~") for nats in known.values())
        how = " (~ typical; quality measures it)" if is_typical else ""
        return f"Loss in nats: {', '.join(f'{name} {nats}' for name, nats in known.items())}{how}."

    def action_measure_again(self) -> None:
        """Measure one run of each column again, in turns, as often as may decide."""
        runs = [column[0].summary.run for column in self._columns]
        times = "once each" if self._n_again == 1 else f"{self._n_again} times each, in turns"
        names = in_words([f"{sanitize(run.subject.quant)} (run {run.run_id})" for run in runs])

        def start(confirmed: bool | None) -> None:
            if confirmed:
                self.app.pop_screen()
                self._measure_again(runs, self._n_again)

        question = f"Measure {names} again, {times}? Afterwards 3 and c compare all of them."
        self.app.push_screen(ConfirmScreen(question, "Measure", is_harmless=True), start)

    def action_next_plot(self) -> None:
        for plot in self.query(CurvesPlot):
            plot.show_next()

    def action_reset_zoom(self) -> None:
        for plot in self.query(CurvesPlot):
            plot.action_reset_scales()

    def action_copy_command(self) -> None:
        self.status.copy_commands(self.runs[0].summary.run.head.command)

    def action_save(self) -> None:
        what = f"run{'' if self._is_one else 's'} {self._numbers}"
        self.ask_to_save(what, lambda: self.runs, has_figures=bool(self._figures))


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
        self.is_waiting = True
        """Whether keys wait until the list is read for the first time, or runs are opened."""
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
        self._take_keys()
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
        if len(marked) < 2:
            self.status.show("Mark two or more runs with space, then press c.")
        else:
            self.open_runs(sorted(run.run_id for run in marked))  # which gives them the letters of the Run screen

    def action_copy_command(self) -> None:
        if runs := self._selected:
            self.status.copy_commands(*(run.stored.command for run in runs))

    def action_save(self) -> None:
        if runs := self._selected:
            what = f"{describe_runs(runs)}{_if_running(runs, 'saved with the samples so far')}"
            run_ids = [run.run_id for run in runs]
            self.ask_to_save(what, lambda: self._load(run_ids), has_figures=any(map(may_draw, runs)))

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
                problems.append(f"Deleted {named}. u undoes that until ggbench exits.")
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
        numbers = _numbers(deleted)

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
        self._take_keys()
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
            self._take_keys()

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

        def read() -> Iterator[tuple[list[SavedRun], Repeats, list[str]]]:
            from ggbench.decisions.known_losses import measured_losses, typical_loss
            from ggbench.decisions.pick.wording import nats_text

            measured = self._load(run_ids)
            repeats: Repeats = ()
            losses: list[str] = []
            if len(measured) > 1:
                subjects = [run.summary.subject for run in measured]
                with host_of(self).services.open_store() as store:
                    repeats = stored_repeats(store, [[run.summary] for run in measured])
                    known = measured_losses(store, {each.header_sha256 for each in subjects})
                for each in subjects:
                    typical = typical_loss(each.quant, each.n_params, each.architecture or "")
                    loss = known.of_weights(each.header_sha256) or typical
                    losses.append("" if loss is None else nats_text(loss))
            yield measured, repeats, losses

        def show(read: tuple[list[SavedRun], Repeats, list[str]]) -> None:
            if self.is_current:
                self.app.push_screen(MeasuredScreen(*read, self.measure_again))
            self.call_after_refresh(self._take_keys)

        self.is_waiting = True
        self.perform("open", read, show)

    def _take_keys(self) -> None:
        self.is_waiting = False
        self.post_message(KeyHandled())

    def measure_again(self, runs: Sequence[Run], n_times: int) -> None:
        """Queue the jobs of runs, in turns, and mark the runs that they become with those that are marked."""
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
            self._table.mark(run.run_id for run in runs if run.run_id is not None)
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


def _numbers(deleted: Sequence[DeletedRun]) -> str:
    return f"run{'' if len(deleted) == 1 else 's'} {', '.join(str(each.run_id) for each in deleted)}"


def _if_running(runs: Sequence[ListedRun], becomes: str) -> str:
    """Return a line for each run in progress: `Run 3 is still running: ….`"""
    running = [run.run_id for run in runs if run.stored.state == RUNNING]
    return "".join(f"\nRun {run_id} is still running: {becomes}." for run_id in running)
