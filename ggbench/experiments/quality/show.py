"""Quality: perplexity of a text, and the divergence from a base."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from ggbench.experiments.quality.document import DOCUMENTS
from ggbench.experiments.quality.figures import quality_figures, scores_lines
from ggbench.experiments.quality.record import ChunkScores, QualityResult
from ggbench.machine.records import MachineReading
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show.columns import estimate_text
from ggbench.show.plot.curves import Figure, PlottedRun
from ggbench.show.presenter import Presenter
from ggbench.show.run_documents import RunDocuments
from ggbench.units import format_count

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ggbench.show.charts.charts import Chart
    from ggbench.show.metric import Metric


class QualityPresenter(Presenter):
    """Runs of kind `quality`."""

    kind: ClassVar[str] = "quality"
    title: ClassVar[str] = "quality"
    documents: ClassVar[RunDocuments] = DOCUMENTS
    has_samples: ClassVar[bool] = False
    plotted: ClassVar[tuple[type, ...]] = (ChunkScores,)

    def figures(self, runs: Sequence[PlottedRun]) -> tuple[Figure, ...]:
        """The running PPL, KLD and distance from the base's PPL, each with its standard error."""
        return quality_figures(runs)

    def live_lines(self, run: PlottedRun) -> tuple[str, ...]:
        """Chunks, PPL, and where there is a base the KLD, the same top tokens and the distance of the PPLs."""
        return scores_lines(run)

    def short_answer(self, run: Run) -> str:
        """`PPL 12.36 ±0.52`."""
        found = run.result
        return f"PPL {estimate_text(found.ppl)}" if isinstance(found, QualityResult) and found.ppl else ""

    def charts(self, summaries: Sequence[QuantSummary], names: Sequence[str]) -> tuple[Chart, ...]:
        """Quality over speed where both were measured, and memory."""
        from ggbench.show.charts.measured import memory_stack, quality_over_speed

        return (quality_over_speed(summaries), memory_stack(summaries))

    def metrics(self, summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
        """Perplexity, the divergence from the base, and memory."""
        from ggbench.decisions.compared_metrics import quality_metrics

        return quality_metrics()

    def headline(self, run: Run) -> str:
        """`PPL 12.36 ± 0.52 over 16 chunks, KLD 0.0312 ± 0.0011 from q8_0`."""
        return self.so_far(run) or "done"

    def has_details(self, run: Run) -> bool:
        """Whether anything was scored."""
        return bool(self.so_far(run))

    def so_far(self, run: Run) -> str:
        """As the headline; empty where nothing was scored."""
        found = run.result
        if not isinstance(found, QualityResult) or found.ppl is None:
            return ""
        text = f"PPL {estimate_text(found.ppl)} over {format_count(found.n_chunks)} chunks"
        if found.divergence is not None and found.base is not None:
            text += f", KLD {estimate_text(found.divergence.kld)} from {found.base.subject.quant}"
        return text

    def against_document(self, run: Run) -> dict[str, object] | None:
        """The nearest published perplexities and divergences."""
        from ggbench.experiments.quality.against import quality_against_document

        return quality_against_document(run) if self.so_far(run) else None

    def against(self, runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
        """The nearest published perplexities and divergences under each run's own."""
        from ggbench.show.terminal.against import quality_against

        return quality_against(runs, width=width)

    def details(self, run: Run, *, folded: bool = False, readings: Sequence[MachineReading] = ()) -> RenderableType:
        """The figures, the text, memory, machine and command."""
        from ggbench.experiments.quality.terminal import quality_details

        return quality_details(run, folded=folded, readings=readings)

    def table(self, runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
        """A line for each quant and KV cache type, the base first, and which of them can be distinguished."""
        from ggbench.experiments.quality.terminal import quality_table

        return quality_table(runs, width=width)


PRESENTER = QualityPresenter()
