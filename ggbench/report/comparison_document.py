"""A comparison for programs."""

from __future__ import annotations

from collections.abc import Sequence

from ggbench.records.summary import QuantSummary
from ggbench.report.comparison import ComparedLine, Comparison
from ggbench.report.comparison_sentence import sentence_of
from ggbench.report.documents import summary_document


def comparison_document(comparison: Comparison, summaries: Sequence[QuantSummary]) -> dict[str, object]:
    """The fields of `ggbench.compare/1`; runs are called by their numbers, metrics by the names of the rows' fields."""
    rows = zip(comparison.names, summaries, strict=True)
    return {
        "rows": [{"name": name} | summary_document(summary) for name, summary in rows],
        "metrics": [_metric(line, comparison) for line in comparison.lines],
        "differences": {each.topic: each.lines for each in comparison.differences},
        "warnings": comparison.warnings,
        "sentence": sentence_of(comparison),
    }


def _metric(line: ComparedLine, comparison: Comparison) -> dict[str, object]:
    lead, run_ids = line.lead, comparison.run_ids
    return {
        "metric": line.key,
        "compared": [run_ids[index] for index in line.compared],
        "better": [run_id for run_id, is_better in zip(run_ids, line.better, strict=True) if is_better],
        "over": lead and run_ids[lead.over],
        "ratio": lead and lead.ratio,
        "ratio_ci95": lead and lead.ratio_ci95,
        "verdict": line.verdict or None,
    }
