"""What a report shows: runs with their figures, their comparison and their charts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from ggbench.decisions.compare.comparison import Comparison, columns_of, compare
from ggbench.record import Record
from ggbench.runs.run import Run
from ggbench.show.charts import LineChart
from ggbench.show.figure import Figure
from ggbench.show.listed_runs import SavedRun, plotted_runs
from ggbench.show.names import model_names, models_title, quant_colors, quant_names, unambiguous_names
from ggbench.show.presenter import charts_of, figure_of, line_charts_of
from ggbench.show.run_figures import is_known

_FIGURES = (
    "model", "quant", "bpw", "memory_bytes", "tok_s", "w_tokens_per_ms", "b_ms", "kld_mean", "ppl", "same_top",
    "max_n_ctx", "n_ctx", "n_gen", "prefill_ms", "p99_ms", "w_ratio", "b_ratio", "b_w16_ms", "file_bytes",
    "weight_bytes", "kv_bytes", "compute_bytes", "source", "note",
)  # fmt: skip
"""The figures most useful for a choice come first: a page shows about ten, the others by scrolling."""


class Report(Record, dict=True):
    runs: tuple[SavedRun, ...]
    comparison: Comparison | None
    """The comparison that `ggbench compare` makes; None for a single run, or if nothing is comparable."""

    @cached_property
    def shown(self) -> tuple[Run, ...]:
        return tuple(one.run for one in self.runs)

    @cached_property
    def title(self) -> str:
        return models_title([run.subject for run in self.shown])

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return the shortest names that distinguish the runs. Printable."""
        return unambiguous_names(self.shown)

    @cached_property
    def colors(self) -> tuple[int, ...]:
        """Return the colour index of each run: a quant of a model has the same one on the whole page."""
        return quant_colors(quant_names([run.subject for run in self.shown]))

    @cached_property
    def figures(self) -> tuple[Figure[Run], ...]:
        is_one = len({*model_names([run.subject for run in self.shown])}) == 1
        found = map(figure_of, _FIGURES[1:] if is_one else _FIGURES)
        return tuple(figure for figure in found if is_known(figure, self.shown))


def report_of(runs: Sequence[SavedRun], apart: Sequence[str]) -> Report:
    """Return the report of these runs; those that differ in `apart` are not averaged, as two servers whose paths are
    left out. Raises StoreError for a run of an unknown kind.
    """
    columns = columns_of([one.run for one in runs], apart)
    comparison = compare(columns) if len(columns) > 1 else None
    return Report(tuple(runs), None if comparison is None or comparison.is_empty else comparison)


def all_charts(runs: Sequence[SavedRun]) -> tuple[LineChart, ...]:
    """Return the non-empty figures and charts of stored runs. Raises StoreError for an unknown kind."""
    shown = [one.run for one in runs]
    kinds = [run.head.kind for run in shown]
    return *line_charts_of(kinds, plotted_runs(runs)), *charts_of(kinds, shown, unambiguous_names(shown))
