"""Opened runs: the details of one, or a comparison of several."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical

from ggbench.decisions.compare.comparison import Comparison, columns_of
from ggbench.decisions.compare.show import comparison_answer
from ggbench.show.answer import Answer
from ggbench.show.listed_runs import SavedRun, saved_figures
from ggbench.show.presenter import presenter_of
from ggbench.tui.widgets.answer_pane import AnswerPane
from ggbench.tui.widgets.bars import key_links
from ggbench.tui.widgets.curves_plot import CurvesPlot


class OpenedRuns(Vertical):
    """The answer of one run, or the comparison of several, above their curves."""

    def __init__(self, runs: Sequence[SavedRun], comparison: Comparison) -> None:
        super().__init__()
        self.run_ids = [run.run_id for run in runs]
        columns, saved = columns_of([each.run for each in runs]), {run.run_id: run for run in runs}
        self._figures = saved_figures([saved[column[0].run_id] for column in columns])
        if len(runs) == 1:
            run = runs[0].run
            self.answer: Answer = presenter_of(run.head.kind).details(run)
            self._title = (
                f"run {run.run_id} · {run.head.kind} · {run.head.started_at[:16].replace('T', ' ')} UTC"
            )
        else:
            numbers = [", ".join(str(one.run_id) for one in column) for column in columns]
            self.answer, self._title = comparison_answer(comparison), f"runs {' with '.join(numbers)}"

    def compose(self) -> ComposeResult:
        yield AnswerPane(self.answer)
        if self._figures:
            yield CurvesPlot()

    def on_mount(self) -> None:
        pane = self.query_one(AnswerPane)
        pane.border_title, pane.border_subtitle = Text(self._title), key_links("w why · esc back")
        pane.focus()
        for plot in self.query(CurvesPlot):
            plot.show(self._figures)
