"""What a report shows: runs by model, with their columns, their comparison and their charts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec

from ggbench.decisions.compare.comparison import Comparison, compare_quants
from ggbench.decisions.compare.estimates import RunSpreads, repeats_among
from ggbench.runs.summary import QuantSummary
from ggbench.show.charts import Chart
from ggbench.show.listed_runs import SavedRun, plotted_runs
from ggbench.show.names import model_names, quant_colors, unambiguous_names
from ggbench.show.presenter import charts_of, figure_of, line_charts_of
from ggbench.show.run_figures import is_known

_COLUMNS = (
    "quant", "bpw", "memory_bytes", "tok_s", "w_tokens_per_ms", "b_ms", "kld_mean", "ppl", "same_top", "max_n_ctx",
    "n_ctx", "n_gen", "prefill_ms", "p99_ms", "w_ratio", "b_ratio", "b_w16_ms", "file_bytes", "weight_bytes",
    "kv_bytes", "compute_bytes", "run_id", "source", "note",
)  # fmt: skip
"""The columns most useful for a choice come first: a page shows about ten, the others by scrolling."""


class ReportedModel(msgspec.Struct, frozen=True, dict=True):
    title: str
    """Printable."""
    runs: tuple[SavedRun, ...]
    spreads: RunSpreads
    """The spread between loads, included in the comparison."""
    colors: tuple[int, ...]
    """Colour index of each run: a quant has the same one on the whole page."""

    @cached_property
    def summaries(self) -> tuple[QuantSummary, ...]:
        return tuple(one.summary for one in self.runs)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return the shortest names that distinguish the runs under the title. Printable."""
        return tuple(name.removeprefix(f"{self.title} ") for name in unambiguous_names(self.summaries))

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return tuple(key for key in _COLUMNS if is_known(figure_of(key), self.summaries))

    @cached_property
    def comparison(self) -> Comparison | None:
        """Return the comparison; None for a single run, or if nothing is comparable."""
        if len(self.runs) < 2:
            return None
        comparison = compare_quants(self.summaries, self.spreads)
        return None if comparison.is_empty else comparison


def report_contents(runs: Sequence[SavedRun]) -> tuple[ReportedModel, ...]:
    """Group runs by model, in the order of their first runs."""
    colors = quant_colors([one.summary.subject.quant for one in runs])
    groups: dict[str, list[int]] = {}
    for index, name in enumerate(model_names([one.summary.subject for one in runs])):
        groups.setdefault(name, []).append(index)
    spreads = RunSpreads(repeats_among(one.summary.run for one in runs))
    return tuple(
        ReportedModel(
            name, tuple(runs[index] for index in group), spreads, tuple(colors[index] for index in group)
        )
        for name, group in groups.items()
    )


def all_charts(runs: Sequence[SavedRun]) -> tuple[Chart, ...]:
    """Return the non-empty figures and charts of stored runs. Raises StoreError for an unknown kind."""
    summaries = [one.summary for one in runs]
    kinds = [summary.run.head.kind for summary in summaries]
    return (
        *line_charts_of(kinds, plotted_runs(runs)),
        *charts_of(kinds, summaries, unambiguous_names(summaries)),
    )
