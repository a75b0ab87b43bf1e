"""Presenters: each shows one kind of run as an answer, figures, JSON, charts, and a live view."""

from __future__ import annotations

import abc
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from ggbench.plugins import load_plugin, plugin_names
from ggbench.runs.run import STILL_RUNNING, Run
from ggbench.show import UNKNOWN
from ggbench.show.answer import Answer, Facts
from ggbench.show.charts import LineChart, PlottedRun
from ggbench.show.figure import Figure
from ggbench.show.metric import Metric, RunFigure, joined, memory_metric
from ggbench.show.names import row_labels
from ggbench.show.run_documents import RunDocuments
from ggbench.show.run_figures import FIGURES
from ggbench.text import sanitize

if TYPE_CHECKING:
    from ggbench.show.against import Beside


class Presenter(abc.ABC):
    """Presents one kind of run; defined as `PRESENTER` in the experiment's `presenter.py` or `show.py`."""

    kind: ClassVar[str]
    documents: ClassVar[RunDocuments]
    has_line: ClassVar[bool] = True
    """Whether all timed steps are one decode, so that a live view shows speed, W and B."""
    plotted: ClassVar[tuple[type, ...]] = ()
    """Types of observations drawn by its figures, besides timed steps."""
    has_samples: ClassVar[bool] = True
    """Whether runs have timed steps to plot, export and compare with published rows."""

    figures: ClassVar[tuple[Figure[Run], ...]] = ()
    """Figures of its runs besides those that all kinds share."""
    headline: ClassVar[Figure[Run] | None] = None
    """Its answer in lists of runs; None if their other columns have it."""
    differences: ClassVar[Mapping[str, tuple[RunFigure, ...]]] = {}
    """Differences between runs besides file, config and environment, by topic."""
    no_answer: ClassVar[str] = "done"
    """Shown for a run that completed without an answer."""

    @property
    def has_figures(self) -> bool:
        return self.has_samples or bool(self.plotted)

    @abc.abstractmethod
    def answer(self, run: Run) -> str:
        """Return the run's results so far in one sentence for a list; empty if there are none. Printable."""

    @abc.abstractmethod
    def details(self, run: Run) -> Answer:
        """Return the answer of one run."""

    def table(self, runs: Sequence[Run]) -> Answer:
        """Return the answer of several runs side by side."""
        names = row_labels([run.subject for run in runs])
        return Answer(
            "", "", [Facts([(name, self.ending(run)) for name, run in zip(names, runs, strict=True)])]
        )

    def beside(self, run: Run) -> Sequence[Beside] | None:
        """Return the run's figures beside the nearest published rows; None if it has none to compare."""
        return None

    def line_charts(self, runs: Sequence[PlottedRun]) -> tuple[LineChart, ...]:
        """Return figures with a curve for each run, in order; empty for a run of another kind."""
        return ()

    def charts(self, runs: Sequence[Run], names: Sequence[str]) -> tuple[LineChart, ...]:
        """Return the charts of a report besides `line_charts`; runs may be of other kinds, and charts empty."""
        return ()

    def metrics(self, runs: Sequence[Run]) -> tuple[Metric, ...]:
        """Return the metrics for comparing runs; they have no value for runs of other kinds."""
        return (memory_metric(runs),)

    def longer(self, runs: Sequence[Run]) -> str:
        """Return the command that measures equally much and more than these runs, whose numbers do not depend on time;
        empty if that would not decide between them.
        """
        return ""

    def caveats(self, runs: Sequence[Run]) -> tuple[str, ...]:
        """Return a line for each number that does not measure the same thing in all runs."""
        return ()

    def short_answer(self, run: Run) -> str:
        """Return the answer in a few words for a list; empty if other columns have it. Printable."""
        if self.headline is None:
            return ""
        text = self.headline.text(run)
        return "" if text == UNKNOWN else f"{self.headline.header} {text} {self.headline.unit}".rstrip()

    def has_details(self, run: Run) -> bool:
        """Return whether there is more to show than how the run ended."""
        return bool(self.answer(run))

    def ending(self, run: Run) -> str:
        """Return the run's answer in one line, or why there is none. Printable."""
        if run.is_complete:
            return sanitize(self.answer(run)) or self.no_answer
        return run.reason if run.reason == STILL_RUNNING else run.outcome.because(sanitize(run.reason))


def line_charts_of(kinds: Iterable[str], runs: Sequence[PlottedRun]) -> tuple[LineChart, ...]:
    """Return the non-empty figures of runs of these kinds, each once. Raises StoreError."""
    found = [figure for kind in dict.fromkeys(kinds) for figure in presenter_of(kind).line_charts(runs)]
    return tuple({figure.key: figure for figure in found if not figure.is_empty}.values())


def charts_of(kinds: Iterable[str], runs: Sequence[Run], names: Sequence[str]) -> tuple[LineChart, ...]:
    """Return the non-empty charts of runs of these kinds, each once. Raises StoreError."""
    found = [chart for kind in dict.fromkeys(kinds) for chart in presenter_of(kind).charts(runs, names)]
    return tuple({chart.key: chart for chart in found if not chart.is_empty}.values())


def metrics_of(kinds: Iterable[str], runs: Sequence[Run]) -> tuple[Metric, ...]:
    """Return the metrics for comparing runs of these kinds, each once. Raises StoreError."""
    return joined(metric for kind in dict.fromkeys(kinds) for metric in presenter_of(kind).metrics(runs))


def own_caveats(kinds: Iterable[str], runs: Sequence[Run]) -> list[str]:
    """Return the caveats of these kinds, each once. Raises StoreError."""
    found = [line for kind in dict.fromkeys(kinds) for line in presenter_of(kind).caveats(runs)]
    return list(dict.fromkeys(found))


def own_differences(kinds: Iterable[str]) -> dict[str, tuple[RunFigure, ...]]:
    found: dict[str, tuple[RunFigure, ...]] = {}
    for kind in dict.fromkeys(kinds):
        found |= presenter_of(kind).differences
    return found


def presenter_of(kind: str) -> Presenter:
    found: Presenter = load_plugin("ggbench.experiments", kind, "show", "presenter").PRESENTER
    return found


def presenters() -> tuple[Presenter, ...]:
    return tuple(map(presenter_of, plugin_names("ggbench.experiments", "show")))


def figure_of(key: str) -> Figure[Run]:
    """Return a figure by its key; loads the experiments only if one of them defines it."""
    return FIGURES.get(key) or all_figures()[key]


def all_figures() -> Mapping[str, Figure[Run]]:
    """Return every figure of a run by its key, in the order of a CSV file."""
    return _figures(plugin_names("ggbench.experiments", "show"))


@functools.cache
def _figures(kinds: Sequence[str]) -> Mapping[str, Figure[Run]]:
    return FIGURES | {each.key: each for kind in kinds for each in presenter_of(kind).figures}
