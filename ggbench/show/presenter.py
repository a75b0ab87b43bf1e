"""What every presenter is: one kind of run as columns, a JSON document, details, one line, and a live view."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from ggbench.machine.records import MachineReading
from ggbench.plugins import load_plugin, plugin_names
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show.columns import Column
from ggbench.show.figures import Figure, PlottedRun, latency_figure
from ggbench.show.metric import MEMORY, Metric, Property, decode_metrics, decoded_lengths, joined, vary
from ggbench.show.run_documents import RunDocuments
from ggbench.text import sanitize

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ggbench.show.charts import Chart


LiveView = Literal["figures", "bracket"]
"""What a front end draws while a run goes on: the presenter's figures, or what is known of the largest context."""


class Presenter(abc.ABC):
    """One kind of run; the module `show` of the kind's folder in `ggbench.experiments`."""

    kind: ClassVar[str]
    title: ClassVar[str] = ""
    """What it is called beside the name of a quant that waits or runs; empty for a plain measurement."""
    documents: ClassVar[RunDocuments]
    """What is printed of its runs with --json."""
    live_view: ClassVar[LiveView] = "figures"
    has_line: ClassVar[bool] = True
    """Whether all its timed steps are one decode, of which a live view shows speed, W and B."""
    plotted: ClassVar[tuple[type, ...]] = ()
    """Types of the observations that its figures draw, besides timed steps."""
    has_samples: ClassVar[bool] = True
    """Whether its runs have timed steps to plot, to export and to compare with published ones, and a text."""

    columns: ClassVar[tuple[Column, ...]] = ()
    """What it adds to tables of rows and to CSV files."""
    differences: ClassVar[Mapping[str, tuple[Property, ...]]] = {}
    """What its runs may differ in beside file, configuration and environment, by topic."""
    no_answer: ClassVar[str] = "done"
    """What is said of a run that completed without an answer."""

    @property
    def has_figures(self) -> bool:
        """Whether its runs may have anything to draw."""
        return self.has_samples or bool(self.plotted)

    @abc.abstractmethod
    def answer(self, run: Run) -> str:
        """What the run has found, so far where it was cut short, in one line; empty where nothing. Printable."""

    @abc.abstractmethod
    def details(self, run: Run, *, folded: bool = False, readings: Sequence[MachineReading] = ()) -> RenderableType:
        """All that is known of the run; `readings` were taken of the machine meanwhile, `folded` wraps the command."""

    @abc.abstractmethod
    def table(self, runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
        """Several runs side by side; `width` is the terminal's, in characters."""

    def against_document(self, run: Run) -> dict[str, object] | None:
        """The nearest published figures, as `documents` takes them; None where the run has nothing to compare."""
        return None

    def against(self, runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
        """Return the nearest published figures under those of the runs; nothing without an `against_document`."""
        return ""

    def figures(self, runs: Sequence[PlottedRun]) -> tuple[Figure, ...]:
        """What there is to draw of these runs, of which some may be of other kinds: a curve for each, in their order.

        That of a run with nothing to draw is empty.
        """
        return ()

    def charts(self, summaries: Sequence[QuantSummary], names: Sequence[str]) -> tuple[Chart, ...]:
        """What a report draws of these runs beside `figures`; some may be of other kinds. Any may be empty."""
        from ggbench.show.charts import memory_stack

        return (memory_stack(summaries),)

    def metrics(self, summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
        """What these runs are compared by; some may be of other kinds, of which a metric then knows nothing."""
        return (MEMORY,)

    def caveats(self, summaries: Sequence[QuantSummary]) -> tuple[str, ...]:
        """Which numbers of these runs do not measure the same thing, in a line each; some may be of other kinds."""
        return ()

    def live_lines(self, run: PlottedRun) -> tuple[str, ...]:
        """What a run that goes on has found so far, in lines of at most 28 characters. Printable."""
        return ()

    def short_answer(self, run: Run) -> str:
        """The answer in a word or two, for a column of a list; empty where other columns have it. Printable."""
        return ""

    def has_details(self, run: Run) -> bool:
        """Whether there is more to show than how the run ended."""
        return bool(self.answer(run))

    def ending(self, run: Run) -> str:
        """How a run ended in one line: its answer, or why there is none. Printable."""
        if run.is_complete:
            return sanitize(self.answer(run)) or self.no_answer
        return run.outcome.because(sanitize(run.reason))


class QuantPresenter(Presenter):
    """Runs that a table of quants shows: a decode or prompts of several lengths."""

    def has_details(self, run: Run) -> bool:
        """Whether anything was timed."""
        return run.is_complete or bool(self.answer(run))

    def figures(self, runs: Sequence[PlottedRun]) -> tuple[Figure, ...]:
        """Latency against position."""
        return (latency_figure(runs),)

    def charts(self, summaries: Sequence[QuantSummary], names: Sequence[str]) -> tuple[Chart, ...]:
        """Speed, W and B beside their limits, prompts, and memory."""
        from ggbench.show.charts import decode_bars, memory_stack, prompt_speed

        return (*decode_bars(summaries), prompt_speed(summaries, names), memory_stack(summaries))

    def metrics(self, summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
        """Speed, W, B, memory, percentiles, and prompts of one length."""
        return decode_metrics(summaries)

    def caveats(self, summaries: Sequence[QuantSummary]) -> tuple[str, ...]:
        """That decodes were over different positions."""
        is_other = vary(decoded_lengths, summaries)
        return ("different lengths: p50, p99 and tok/s are over different positions",) if is_other else ()

    def against_document(self, run: Run) -> dict[str, object] | None:
        """The nearest speeds."""
        from ggbench.show.against import nearest_to

        summary = QuantSummary.of([run])
        return {"against": nearest_to(summary)} if summary.decode is not None or summary.prefills else None

    def against(self, runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
        """The nearest speeds under each run's own."""
        from ggbench.show.against import against_tables

        return against_tables([QuantSummary.of([run]) for run in runs], width=width)

    def details(self, run: Run, *, folded: bool = False, readings: Sequence[MachineReading] = ()) -> RenderableType:
        """File, memory, speed, limit, machine and command."""
        from ggbench.show.quants import row_details

        return row_details(QuantSummary.of([run]), folded=folded, readings=readings)


def figures_of(kinds: Iterable[str], runs: Sequence[PlottedRun]) -> tuple[Figure, ...]:
    """The figures of runs of these kinds that have anything to draw, each once. Raises StoreError as `presenter_of`."""
    found = [figure for kind in dict.fromkeys(kinds) for figure in presenter_of(kind).figures(runs)]
    return tuple({figure.key: figure for figure in found if not figure.is_empty}.values())


def charts_of(kinds: Iterable[str], summaries: Sequence[QuantSummary], names: Sequence[str]) -> tuple[Chart, ...]:
    """The charts of runs of these kinds that have anything to draw, each once. Raises StoreError as `presenter_of`."""
    found = [chart for kind in dict.fromkeys(kinds) for chart in presenter_of(kind).charts(summaries, names)]
    return tuple({chart.key: chart for chart in found if not chart.is_empty}.values())


def metrics_of(kinds: Iterable[str], summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
    """The metrics that runs of these kinds are compared by, each once. Raises StoreError as `presenter_of`."""
    return joined(metric for kind in dict.fromkeys(kinds) for metric in presenter_of(kind).metrics(summaries))


def own_caveats(kinds: Iterable[str], summaries: Sequence[QuantSummary]) -> list[str]:
    """What presenters of these kinds warn of, each once. Raises StoreError as `presenter_of`."""
    found = [line for kind in dict.fromkeys(kinds) for line in presenter_of(kind).caveats(summaries)]
    return list(dict.fromkeys(found))


def own_differences(kinds: Iterable[str]) -> dict[str, tuple[Property, ...]]:
    """What runs of these kinds may differ in, by topic. Raises StoreError as `presenter_of`."""
    found: dict[str, tuple[Property, ...]] = {}
    for kind in dict.fromkeys(kinds):
        found |= presenter_of(kind).differences
    return found


def presenter_of(kind: str) -> Presenter:
    """The presenter of runs of this kind. Raises StoreError for one that this ggbench does not have."""
    found: Presenter = load_plugin("ggbench.experiments", kind, "show", "presenter").PRESENTER
    return found


def presenters() -> tuple[Presenter, ...]:
    """The presenters of all kinds."""
    return tuple(map(presenter_of, plugin_names("ggbench.experiments")))
