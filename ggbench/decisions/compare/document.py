"""A comparison as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ggbench.decisions.compare.comparison import ComparedLine, Comparison
from ggbench.decisions.compare.limits import LimitCheck
from ggbench.decisions.compare.show import sentence_of
from ggbench.decisions.compare.versus import Versus
from ggbench.runs.summary import QuantSummary
from ggbench.show.depths import reach_of
from ggbench.show.documents import summary_document
from ggbench.show.plot.palette import letter
from ggbench.stats.intervals import Interval


def comparison_document(
    comparison: Comparison, summaries: Sequence[QuantSummary], checks: Sequence[LimitCheck] = ()
) -> dict[str, object]:
    """The fields of `ggbench.compare/1`; runs are called by their numbers, metrics by the names of the rows' fields.

    `versus` has each further run beside the first, in their order, by letters, as runs of files have no number.
    """
    rows = zip(comparison.names, summaries, strict=True)
    return {
        "rows": [
            {"name": name, "letter": letter(index), "kind": summary.run.head.kind} | summary_document(summary)
            for index, (name, summary) in enumerate(rows)
        ],
        "metrics": [_metric(line, comparison) for line in comparison.lines],
        "depths": [_depth(line, comparison, summaries) for line in comparison.depths],
        "differences": {each.topic: each.lines for each in comparison.differences},
        "warnings": comparison.warnings,
        "sentence": sentence_of(comparison),
        "checks": [_check(check, comparison) for check in checks],
    }


def _metric(line: ComparedLine, comparison: Comparison) -> dict[str, object]:
    lead, run_ids = line.lead, comparison.run_ids
    spreads = [each for each in line.spreads if each is not None]
    return {
        "metric": line.key,
        "compared": [run_ids[index] for index in line.compared],
        "better": [run_id for run_id, is_better in zip(run_ids, line.better, strict=True) if is_better],
        "over": lead and run_ids[lead.over],
        "ratio": lead and lead.ratio,
        "ratio_ci95": lead and _finite(lead.ratio_ci95),
        "verdict": line.verdict or None,
        "versus": [_versus(index, found) for index, found in enumerate(line.versus) if found is not None and index],
        "load_spread": max((each.sigma for each in spreads), default=None),
        "n_repeats": min((each.n_repeats for each in spreads), default=None),
    }


def _versus(index: int, found: Versus) -> dict[str, object]:
    return {
        "letter": letter(index),
        "ratio": found.ratio,
        "ratio_ci95": _finite(found.ratio_ci95),
        "difference": found.difference,
        "difference_ci95": _finite(found.difference_ci95),
        "is_different": found.is_different,
    }


def _depth(line: ComparedLine, comparison: Comparison, summaries: Sequence[QuantSummary]) -> dict[str, object]:
    depth = int(line.key.removeprefix("tok_s_d"))
    reaches = list(map(reach_of, summaries))
    beyond = [letter(index) for index, reach in enumerate(reaches) if reach is not None and depth >= reach]
    return {"n_depth": depth, "texts": line.texts, "extrapolated": beyond} | _metric(line, comparison)


def _check(check: LimitCheck, comparison: Comparison) -> dict[str, object]:
    return {
        "limit": check.option,
        "share": check.share,
        "letter": letter(check.run),
        "metric": check.key,
        "state": check.state,
        "worse_by": check.worse_by,
        "worse_by_ci95": _finite(check.worse_by_ci95),
        "repeats_needed": check.repeats_needed,
        "message": check.message(comparison),
    }


def _finite(ends: Interval | None) -> tuple[float | None, float | None] | None:
    """JSON has no infinity; an open end is null."""
    if ends is None:
        return None
    low, high = (end if math.isfinite(end) else None for end in ends)
    return low, high
