"""Speed by input length and batch size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from ggbench.experiments.speed.against import speed_against_document
from ggbench.experiments.speed.document import DOCUMENTS, largest_case, result_of, speed_line
from ggbench.experiments.speed.figures import case_grid, speed_figures
from ggbench.experiments.speed.record import SpeedCase
from ggbench.machine.records import MachineReading
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show.plot.curves import Figure, PlottedRun
from ggbench.show.presenter import Presenter
from ggbench.show.run_documents import RunDocuments

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ggbench.show.metric import Metric


class SpeedPresenter(Presenter):
    """Runs of kind `speed`."""

    kind: ClassVar[str] = "speed"
    title: ClassVar[str] = "speed"
    documents: ClassVar[RunDocuments] = DOCUMENTS
    has_line: ClassVar[bool] = False
    plotted: ClassVar[tuple[type, ...]] = (SpeedCase,)

    def figures(self, runs: Sequence[PlottedRun]) -> tuple[Figure, ...]:
        """Tokens/s over input length for each batch size, and the latency of steps."""
        return speed_figures(runs)

    def live_lines(self, run: PlottedRun) -> tuple[str, ...]:
        """The grid of cases, as far as they ended."""
        return case_grid(run)

    def short_answer(self, run: Run) -> str:
        """`12.3 tok/s at 2kx8`: of the largest case that ran."""
        return largest_case(run)

    def headline(self, run: Run) -> str:
        """`9 of 9 cases, 12.3 tok/s as Qwen2.5 counts at input 2,048, batch 8`."""
        return self.so_far(run) or "no case was measured"

    def so_far(self, run: Run) -> str:
        """As the headline; empty where no case ran to its end."""
        return speed_line(run)

    def has_details(self, run: Run) -> bool:
        """Whether any case ended."""
        return bool(result_of(run).cases)

    def metrics(self, summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
        """The cases that several have, and W and B of their batch sizes."""
        from ggbench.decisions.compared_metrics import speed_metrics

        return speed_metrics(summaries)

    def against_document(self, run: Run) -> dict[str, object] | None:
        """The cases, each with the nearest published rows; None where no case ended."""
        return speed_against_document(run) if result_of(run).cases else None

    def against(self, runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
        """The nearest published rows under each case."""
        from ggbench.experiments.speed.terminal_against import case_against_tables

        return case_against_tables(runs)

    def details(self, run: Run, *, folded: bool = False, readings: Sequence[MachineReading] = ()) -> RenderableType:
        """The cases, W and B beside their limits, machine and command."""
        from ggbench.experiments.speed.terminal import speed_details

        return speed_details(run, folded=folded, readings=readings)

    def table(self, runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
        """The cases of each run."""
        from ggbench.experiments.speed.terminal import speed_table

        return speed_table(runs, width=width)


PRESENTER = SpeedPresenter()
