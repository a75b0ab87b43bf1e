"""A search for settings that beat the defaults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from ggbench.experiments.tune.document import DOCUMENTS, ratio_text, result_of, verdict
from ggbench.experiments.tune.figures import race_figure, race_lines
from ggbench.experiments.tune.record import TuneCandidate, TuneDropped, TuneSegment
from ggbench.machine.records import MachineReading
from ggbench.runs.run import Run
from ggbench.show.plot.curves import Figure, PlottedRun
from ggbench.show.presenter import Presenter
from ggbench.show.run_documents import RunDocuments
from ggbench.text import plain

if TYPE_CHECKING:
    from rich.console import RenderableType


class TunePresenter(Presenter):
    """Runs of kind `tune`."""

    kind: ClassVar[str] = "tune"
    title: ClassVar[str] = "tune"
    documents: ClassVar[RunDocuments] = DOCUMENTS
    has_line: ClassVar[bool] = False
    has_samples: ClassVar[bool] = False
    plotted: ClassVar[tuple[type, ...]] = (TuneCandidate, TuneSegment, TuneDropped)

    def figures(self, runs: Sequence[PlottedRun]) -> tuple[Figure, ...]:
        """The race: speed over the defaults' after each round."""
        return (race_figure(runs),)

    def live_lines(self, run: PlottedRun) -> tuple[str, ...]:
        """The fastest so far."""
        return race_lines(run)

    def short_answer(self, run: Run) -> str:
        """`2.83 ±0.04 x`, `defaults`, or `too noisy`; empty where nothing was compared."""
        found = result_of(run)
        if found.has_gain:
            return f"{ratio_text(found.ratio)} x"
        if not verdict(run):
            return ""
        return "too noisy" if found.unsteady else "defaults"

    def headline(self, run: Run) -> str:
        """`flash_attn off: 1.68 ±0.02 times the speed of the defaults`."""
        return self.so_far(run) or "nothing was measured"

    def so_far(self, run: Run) -> str:
        """As the headline; empty before the first round ended."""
        return plain(verdict(run))

    def has_details(self, run: Run) -> bool:
        """Whether any candidate is known."""
        return bool(result_of(run).candidates)

    def details(self, run: Run, *, folded: bool = False, readings: Sequence[MachineReading] = ()) -> RenderableType:
        """The gain, the candidates, the commands and the machine."""
        from ggbench.experiments.tune.terminal import tune_details

        return tune_details(run, folded=folded, readings=readings)

    def table(self, runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
        """A line for each run."""
        from ggbench.experiments.tune.terminal import tune_table

        return tune_table(runs, width=width)


PRESENTER = TunePresenter()
