"""A search for the largest context: the n_ctx that works, and the probes that led to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from ggbench.experiments.maxctx.document import DOCUMENTS, context_of
from ggbench.machine.records import MachineReading
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show.columns import max_n_ctx_text
from ggbench.show.presenter import LiveView, Presenter
from ggbench.show.run_documents import RunDocuments
from ggbench.units import counted, format_count

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ggbench.show.charts.charts import Chart
    from ggbench.show.metric import Metric


class MaxctxPresenter(Presenter):
    """Runs of kind `maxctx`."""

    kind: ClassVar[str] = "maxctx"
    title: ClassVar[str] = "largest context"
    documents: ClassVar[RunDocuments] = DOCUMENTS
    live_view: ClassVar[LiveView] = "bracket"
    has_samples: ClassVar[bool] = False

    def charts(self, summaries: Sequence[QuantSummary], names: Sequence[str]) -> tuple[Chart, ...]:
        """Every probe in its order, and memory."""
        from ggbench.show.charts.measured import memory_stack, probes

        return (probes(summaries), memory_stack(summaries))

    def metrics(self, summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
        """Memory and the largest context."""
        from ggbench.decisions.compared_metrics import context_metrics

        return context_metrics()

    def headline(self, run: Run) -> str:
        """`n_ctx 8,192, proven by a decode, after 3 contexts`."""
        found = context_of(run)
        if found.max_n_ctx is None:
            return run.reason or "no n_ctx works"
        proven = "proven by a decode" if found.verified_by_decode else "not proven"
        return f"n_ctx {format_count(found.max_n_ctx)}, {proven}, after {counted(found.n_allocations, 'context')}"

    def short_answer(self, run: Run) -> str:
        """`n_ctx 24,576`."""
        summary = QuantSummary.of([run])
        return "" if summary.max_n_ctx is None else f"n_ctx {max_n_ctx_text(summary)}"

    def ending(self, run: Run) -> str:
        """As every run ends; a search that was cut short with what it has found so far."""
        if run.is_complete or context_of(run).max_n_ctx is None:
            return Presenter.ending(self, run)
        return self.so_far(run)

    def so_far(self, run: Run) -> str:
        """The largest n_ctx that is known to work."""
        is_known = context_of(run).max_n_ctx is not None
        return f"so far {self.headline(run)}" if is_known else "no working n_ctx found yet"

    def details(self, run: Run, *, folded: bool = False, readings: Sequence[MachineReading] = ()) -> RenderableType:
        """The answer, where its memory goes, the probes, machine and command."""
        from ggbench.experiments.maxctx.terminal import certificate_details

        return certificate_details(run, folded=folded, readings=readings)

    def table(self, runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
        """A line for each quant."""
        from ggbench.experiments.maxctx.terminal import certificates_table

        return certificates_table(runs, width=width)


PRESENTER = MaxctxPresenter()
