"""A forecast: the speed that a model would have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from ggbench.experiments.forecast.document import DOCUMENTS, forecast_line, result_of
from ggbench.machine.records import MachineReading
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show.presenter import Presenter
from ggbench.show.run_documents import RunDocuments

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ggbench.show.metric import Metric


class ForecastPresenter(Presenter):
    """Runs of kind `forecast`."""

    kind: ClassVar[str] = "forecast"
    title: ClassVar[str] = "forecast"
    documents: ClassVar[RunDocuments] = DOCUMENTS
    has_line: ClassVar[bool] = False
    has_samples: ClassVar[bool] = False

    def headline(self, run: Run) -> str:
        """What is expected, in one line."""
        return self.so_far(run) or "nothing is expected"

    def so_far(self, run: Run) -> str:
        """As the headline; empty before the first round ended."""
        return forecast_line(run)

    def has_details(self, run: Run) -> bool:
        """Whether anything is expected."""
        return result_of(run).b_ms is not None

    def metrics(self, summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
        """W and B."""
        from ggbench.decisions.compared_metrics import forecast_metrics

        return forecast_metrics()

    def details(self, run: Run, *, folded: bool = False, readings: Sequence[MachineReading] = ()) -> RenderableType:
        """All that is expected, and what it comes from."""
        from ggbench.experiments.forecast.terminal import forecast_details

        return forecast_details(run, folded=folded, readings=readings)

    def table(self, runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
        """A line for each run."""
        from ggbench.experiments.forecast.terminal import forecast_table

        return forecast_table(runs, width=width)


PRESENTER = ForecastPresenter()
