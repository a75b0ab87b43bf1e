"""What a report holds, whatever its form: runs by model, their table, what compares, and their charts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from ggbench.decisions.compare.comparison import Comparison, compare_quants
from ggbench.decisions.compare.repeats import RunSpreads, repeats_among
from ggbench.runs.summary import QuantSummary
from ggbench.show import UNKNOWN
from ggbench.show.columns import all_columns, column_texts
from ggbench.show.names import model_names, unambiguous_names
from ggbench.show.presenter import charts_of, figures_of
from ggbench.show.saving import SavedRun, plotted_runs

if TYPE_CHECKING:
    from ggbench.show.charts.charts import Chart


_COLUMNS = (
    "run_id", "quant", "source", "file_bytes", "bpw", "weight_bytes", "kv_bytes", "compute_bytes", "n_ctx",
    "max_n_ctx", "n_gen", "prefill_ms", "tok_s", "w_tokens_per_ms", "w_ratio", "b_ms", "b_ratio", "b_w16_ms", "p99_ms",
    "ppl", "kld_mean", "same_top", "note",
)  # fmt: skip


class ReportedModel(msgspec.Struct, frozen=True, dict=True):
    """The runs of one model."""

    title: str
    """Printable."""
    runs: tuple[SavedRun, ...]
    """In the order in which they were given."""
    spreads: RunSpreads
    """Between loads, which the comparison includes."""

    @cached_property
    def summaries(self) -> tuple[QuantSummary, ...]:
        """The runs as tables take them."""
        return tuple(one.summary for one in self.runs)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The shortest names that distinguish the runs under the title. Printable."""
        return tuple(name.removeprefix(f"{self.title} ") for name in unambiguous_names(self.summaries))

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Keys of the columns in which any run has something."""
        return tuple(key for key in _COLUMNS if {*column_texts(key, self.summaries)} - {UNKNOWN, ""})

    @cached_property
    def comparison(self) -> Comparison | None:
        """The runs side by side; None of a single run, and where nothing of two runs compares."""
        if len(self.runs) < 2:
            return None
        comparison = compare_quants(self.summaries, self.spreads)
        return None if comparison.is_empty else comparison

    @cached_property
    def charts(self) -> tuple[Chart, ...]:
        """All that there is to draw. Raises StoreError for a kind that this ggbench does not have."""
        return all_charts(self.runs)


def report_contents(runs: Sequence[SavedRun]) -> tuple[ReportedModel, ...]:
    """Group runs by model, in the order in which models come first; repeats among them say how far loads differ."""
    groups: dict[str, list[SavedRun]] = {}
    for name, one in zip(model_names([one.summary.subject for one in runs]), runs, strict=True):
        groups.setdefault(name, []).append(one)
    spreads = RunSpreads(repeats_among(one.summary.run for one in runs))
    return tuple(ReportedModel(name, tuple(group), spreads) for name, group in groups.items())


def all_charts(runs: Sequence[SavedRun]) -> tuple[Chart, ...]:
    """Return figures and charts of stored runs that have anything to draw."""
    summaries = [one.summary for one in runs]
    kinds = [summary.run.head.kind for summary in summaries]
    return (*figures_of(kinds, plotted_runs(runs)), *charts_of(kinds, summaries, unambiguous_names(summaries)))


def header_of(key: str) -> str:
    """Return the header of a column with its unit: `W [tokens/ms]`."""
    column = all_columns()[key]
    return f"{column.header} [{column.unit}]" if column.unit else column.header
