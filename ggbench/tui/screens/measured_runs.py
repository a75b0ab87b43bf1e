"""One stored run in full, or several side by side: curves over details or a table."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar

from rich.console import RenderableType
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widget import Widget
from textual.widgets import Footer, Static

from ggbench.decisions.compare.comparison import compare_quants
from ggbench.decisions.compare.estimates import Repeats, RunSpreads
from ggbench.decisions.compare.report import ComparisonReport
from ggbench.errors import StoreError
from ggbench.show.figures import Figure
from ggbench.show.listed_runs import saved_figures
from ggbench.show.names import quant_name
from ggbench.show.presenter import presenter_of
from ggbench.text import sanitize
from ggbench.tui.screens.task_screen import RunsScreen
from ggbench.tui.stored_runs import MeasuredRun
from ggbench.tui.widgets.bars import StatusMessage, TooSmall
from ggbench.tui.widgets.curves_plot import CurvesPlot


class DetailsPane(VerticalScroll, can_focus=True):
    """Scrolls with j and k, like the lists."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", "Down", show=False),
        Binding("k", "scroll_up", "Up", show=False),
    ]


class MeasuredScreen(RunsScreen):
    """Curves over what a subclass shows of the runs; esc returns to the Results screen."""

    AUTO_FOCUS = "DetailsPane"
    CSS_PATH = "measured_runs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.pop_screen", "Back", tooltip="Back to the list of runs"),
        Binding("v", "next_plot", "Next plot", tooltip="Draw the next figure, such as KLD after PPL"),
        Binding("w", "save", "Save", tooltip="Save as HTML, CSV or SVG"),
        Binding("r", "reset_zoom", "Reset zoom", show=False, tooltip="Show all of a plot that was zoomed"),
    ]

    def __init__(self, runs: tuple[MeasuredRun, ...], title: str, figures: Sequence[Figure]) -> None:
        super().__init__()
        self.runs, self._title, self._figures = runs, title, figures

    def compose(self) -> ComposeResult:
        yield Static(self._title, id="title", markup=False)
        with DetailsPane(id="pane"):
            if self._figures:
                yield CurvesPlot()
            yield from self._details()
        yield StatusMessage()
        yield TooSmall()
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        for plot in self.query(CurvesPlot):
            plot.show(self._figures)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "next_plot" or len(self._figures) > 1

    def action_next_plot(self) -> None:
        for plot in self.query(CurvesPlot):
            plot.show_next()

    def action_reset_zoom(self) -> None:
        for plot in self.query(CurvesPlot):
            plot.action_reset_scales()

    def action_save(self) -> None:
        what = f"run{'' if len(self.runs) == 1 else 's'} {_numbers(self.runs)}"
        self.ask_to_save(what, lambda: self.runs, has_figures=bool(self._figures))

    @abstractmethod
    def _details(self) -> Iterable[Widget]:
        """What stands below the curves."""


class RunDetails(MeasuredScreen):
    """All that is known of the single run in `runs`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "copy_command", "Copy command", tooltip="Copy the command that repeats the run")
    ]

    def __init__(self, run: MeasuredRun) -> None:
        stored = run.listed.stored
        started = sanitize(stored.started_at[:16]).replace("T", " ")
        super().__init__((run,), f"Run {run.run_id} · {sanitize(stored.kind)} · {started} UTC", run.figures())

    def action_copy_command(self) -> None:
        self.status.copy_commands(self.runs[0].listed.stored.command)

    def _details(self) -> Iterable[Widget]:
        (measured,) = self.runs
        if measured.listed.problem:
            yield Static(f"! {measured.listed.problem}", classes="problem", markup=False)
        yield Static(_run_details(measured), id="details")


class CompareScreen(MeasuredScreen):
    """Two or more runs of any kinds: the better value of each metric, and other differences."""

    HELP = """★ marks the better value: the 95 % interval of the ratio excludes 1, and no run beats it.
The interval includes how far runs of the same settings differ from one load of the model to the next.
Memory is exact and needs no interval. If a run has no interval, the table names the larger or smaller value without ★.
In the plot: samples as a band, ╌ the fitted line, · the limit of the machine's memory bandwidth."""

    def __init__(self, runs: tuple[MeasuredRun, ...], repeats: Repeats = ()) -> None:
        """`repeats` of all stored runs say how far loads differ."""
        figures = saved_figures([one.to_save() for one in runs])
        super().__init__(runs, f"Comparing runs {_numbers(runs)}", figures)
        self._repeats = repeats

    def _details(self) -> Iterable[Widget]:
        comparison = compare_quants([one.summary for one in self.runs], RunSpreads(self._repeats))
        yield Static(ComparisonReport(comparison, answer_first=True), id="table")


def _numbers(runs: Sequence[MeasuredRun]) -> str:
    return ", ".join(str(one.run_id) for one in runs)


def _run_details(measured: MeasuredRun) -> RenderableType:
    """Return all that is known of a run; of one that this ggbench cannot read, what it was and how it ended."""
    listed = measured.listed
    if listed.run is not None:
        try:
            return presenter_of(listed.run.head.kind).details(listed.run, folded=True, readings=measured.readings)
        except StoreError:
            pass
    lines = (quant_name(listed.subject), listed.state, sanitize(listed.subject.file), sanitize(listed.stored.command))
    return Text("\n".join(filter(None, lines)))
