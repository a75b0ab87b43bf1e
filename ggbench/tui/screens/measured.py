"""Opened runs: the details of one, or a comparison of several."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from ggbench.decisions.compare.comparison import Comparison, columns_of
from ggbench.decisions.compare.show import comparison_answer
from ggbench.errors import GgbenchError
from ggbench.runs.comparable import is_repeatable
from ggbench.runs.run import Run
from ggbench.show.answer import Answer
from ggbench.show.listed_runs import SavedRun, saved_figures
from ggbench.show.presenter import presenter_of
from ggbench.stats.turns import FEWEST_TURNS
from ggbench.text import in_words, sanitize
from ggbench.tui.host import TaskScreen
from ggbench.tui.screens.dialogs import ConfirmScreen, ReportForm, SaveChoice
from ggbench.tui.widgets.answer_pane import AnswerPane
from ggbench.tui.widgets.bars import KeysFooter, StatusMessage
from ggbench.tui.widgets.curves_plot import CurvesPlot

_COMPARE_HELP = """Runs of one file and setting are averaged. ★ marks the better value: the 95 % interval of the ratio
excludes 1. In the plot: samples as a band, ╌ the fitted line, · the limit by bandwidth."""


class RunsScreen(TaskScreen):
    """A screen of stored runs with a status message."""

    def ask_to_save(self, what: str, load: Callable[[], Sequence[SavedRun]]) -> None:
        """Ask for the format and save the result of `load`, called in a thread; the question names `what`."""

        def ask(form: ReportForm | None) -> None:
            if form is not None:
                self.perform(f"save {what}", lambda: save(form), lambda lines: self.status.show(*lines))

        def save(form: ReportForm) -> Iterator[list[str]]:
            from ggbench.formats.report import save_report

            yield [f"Saved {save_report(load(), f'.{form}', Path.cwd())}"]

        self.app.push_screen(SaveChoice(what), ask)

    def show_failure(self, task: str, error: GgbenchError) -> None:
        self.status.show_error(error)

    @property
    def status(self) -> StatusMessage:
        return self.query_one(StatusMessage)


class MeasuredScreen(RunsScreen):
    """The answer of one run, or the comparison of several, above their curves; esc returns to the Results screen."""

    AUTO_FOCUS = "AnswerPane"
    CSS_PATH = "measured.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.pop_screen", "Back", tooltip="Back to the list of runs"),
        Binding("v", "next_plot", "Next plot", tooltip="Draw the next figure, such as KLD after PPL"),
        Binding("s", "save", "Save", tooltip="Save as HTML, CSV or SVG"),
        Binding("y", "copy_command", "Copy command", tooltip="Copy the command that repeats the run"),
        Binding(
            "b",
            "measure_again",
            "Measure again",
            tooltip="Measure the runs again, in turns, and mark the new runs",
        ),
        Binding("r", "reset_zoom", "Reset zoom", show=False, tooltip="Show all of a plot that was zoomed"),
    ]

    def __init__(
        self,
        runs: Sequence[SavedRun],
        comparison: Comparison,
        measure_again: Callable[[Sequence[Run], int, Sequence[int]], None],
    ) -> None:
        """`measure_again` takes the runs, how often, and the numbers of the present ones to compare them with."""
        super().__init__()
        self.runs, self._comparison, self._measure_again = runs, comparison, measure_again
        self._is_one, self._numbers = len(runs) == 1, ", ".join(str(run.run_id) for run in runs)
        self._columns, saved = columns_of([run.summary for run in runs]), {run.run_id: run for run in runs}
        self._figures = saved_figures([saved[column[0].run.run_id] for column in self._columns])
        self.HELP = "" if self._is_one else _COMPARE_HELP  # type: ignore[misc]

    def compose(self) -> ComposeResult:
        yield Static(self._title, id="title", markup=False)
        yield AnswerPane(self._answer)
        if self._figures:
            yield CurvesPlot()
        yield StatusMessage()
        yield KeysFooter()

    @property
    def _title(self) -> str:
        if not self._is_one:
            numbers = [", ".join(str(one.run.run_id) for one in column) for column in self._columns]
            return f"Comparing runs {' with '.join(numbers)}"
        head = self.runs[0].summary.run.head
        return f"Run {self._numbers} · {head.kind} · {head.started_at[:16].replace('T', ' ')} UTC"

    @property
    def _answer(self) -> Answer:
        if self._is_one:
            run = self.runs[0].summary.run
            return presenter_of(run.head.kind).details(run)
        return comparison_answer(self._comparison)

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
        return all(map(is_repeatable, (one.summary.run for one in self.runs)))

    def action_measure_again(self) -> None:
        """Measure one run again, or one of each column in as many turns as give an interval."""
        runs = [column[0].run for column in self._columns]
        n_times, times, which = 1, "", "both"
        if not self._is_one:
            n_times, times, which = FEWEST_TURNS, f", {FEWEST_TURNS} times each, in turns", "the new runs"
        names = in_words([f"{sanitize(run.subject.quant)} (run {run.run_id})" for run in runs])

        def start(confirmed: bool | None) -> None:
            if confirmed:
                kept = [one.run_id for one in self.runs if self._is_one and one.run_id is not None]
                self.app.pop_screen()
                self._measure_again(runs, n_times, kept)

        question = f"Measure {names} again{times}? Afterwards 3 and c compare {which}."
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
        self.ask_to_save(what, lambda: self.runs)
