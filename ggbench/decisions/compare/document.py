"""JSON of runs side by side; runs are called by their numbers, metrics by the names of the rows' fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ggbench.decisions.compare.comparison import Better, ComparedLine, Comparison
from ggbench.decisions.compare.estimates import Versus
from ggbench.decisions.compare.limits import LimitCheck
from ggbench.decisions.compare.show import sentence_of
from ggbench.runs.run import Run, RunHead
from ggbench.runs.summary import QuantSummary
from ggbench.show import letter
from ggbench.show.document import Document, Shape, field, many, of, sometimes
from ggbench.show.metric import reach_of
from ggbench.show.published_document import AGAINST
from ggbench.show.run_documents import ENDS, NUMBER, QUANT


class _Line(NamedTuple):
    """A metric of all runs, with the runs."""

    line: ComparedLine
    comparison: Comparison
    summaries: Sequence[QuantSummary]

    @property
    def compared(self) -> list[int | None]:
        return [self.comparison.run_ids[index] for index in self.line.compared]

    @property
    def better(self) -> list[int | None]:
        pairs = zip(self.comparison.run_ids, self.line.better, strict=True)
        return [run_id for run_id, is_better in pairs if is_better]

    @property
    def won(self) -> Better | None:
        return next((each for each in self.line.reasons if isinstance(each, Better)), None)

    @property
    def over(self) -> int | None:
        return None if self.won is None else self.comparison.run_ids[self.won.over]

    @property
    def versus(self) -> list[tuple[int, Versus]]:
        return [(index, found) for index, found in enumerate(self.line.versus) if found is not None and index]

    @property
    def load_spread(self) -> float | None:
        return max((each.sigma for each in self.line.spreads if each is not None), default=None)

    @property
    def n_repeats(self) -> int | None:
        return min((each.n_repeats for each in self.line.spreads if each is not None), default=None)

    @property
    def n_depth(self) -> int:
        return int(self.line.key.removeprefix("tok_s_d"))

    @property
    def extrapolated(self) -> list[str]:
        reaches = list(map(reach_of, self.summaries))
        return [letter(index) for index, reach in enumerate(reaches) if reach is not None and self.n_depth >= reach]


class _Check(NamedTuple):
    check: LimitCheck
    comparison: Comparison


_LETTER = "What the run is called in texts: the first is `a`."
_VERSUS = Shape(
    "Versus",
    "A run beside the first.",
    field("letter", str, _LETTER, lambda pair: letter(pair[0])),
    of(Versus, "ratio", lambda pair: pair[1]),
    field("ratio_ci95", ENDS, get=lambda pair: pair[1].ratio_ci95),
    of(Versus, "difference", lambda pair: pair[1]),
    field("difference_ci95", ENDS, get=lambda pair: pair[1].difference_ci95),
    of(Versus, "is_different", lambda pair: pair[1]),
)
_METRIC = Shape(
    "Metric",
    "One metric of all runs.",
    of(ComparedLine, "metric=key", lambda of_all: of_all.line),
    field(
        "compared",
        list[int | None],
        "Numbers of the runs whose values can be compared; null of one that is not stored.",
    ),
    field(
        "better", list[int | None], "Numbers of the runs that none is better than, and that are better than another."
    ),
    field("over", int | None, "Number of the next best, where one run is better than all others."),
    field(
        "ratio",
        NUMBER,
        "Its value over that of the next best.",
        lambda of_all: of_all.won and of_all.won.ratio,
    ),
    field("ratio_ci95", ENDS, get=lambda of_all: of_all.won and of_all.won.ratio_ci95),
    of(ComparedLine, "verdict?", lambda of_all: of_all.line),
    field("versus", many(_VERSUS), "Every run but the first beside the first, where both are compared."),
    field("load_spread", NUMBER, "Standard deviation between loads, as a share; the intervals include it."),
    field("n_repeats", int | None, "Loads that it was taken from."),
)
_DEPTH = Shape(
    "Depth",
    "One depth.",
    field("n_depth", int, "Tokens that are in the cache already."),
    of(ComparedLine, "texts", lambda of_all: of_all.line),
    field("extrapolated", list[str], "Letters of the runs that did not come so far."),
    _METRIC.fields,
)
_LIMIT = Shape(
    "Check",
    "One limit.",
    of(LimitCheck, "limit=option share", lambda pair: pair.check),
    field("letter", str, _LETTER, lambda pair: letter(pair.check.run)),
    of(LimitCheck, "metric=key state worse_by", lambda pair: pair.check),
    field("worse_by_ci95", ENDS, get=lambda pair: pair.check.worse_by_ci95),
    of(LimitCheck, "repeats_needed", lambda pair: pair.check),
    field("message", str, get=lambda pair: pair.check.message(pair.comparison)),
)
_NAMED = sometimes(
    field("name", str, "The shortest name that distinguishes it from the others."),
    field("letter", str, _LETTER),
    of(RunHead, "kind"),
)
_ROW = Shape("Row", "One run.", _NAMED, QUANT.without("against"))
PUBLISHED_RUN = Shape(
    "Published",
    "A run beside published figures.",
    of(Run, "run_id"),
    AGAINST,
    sometimes(field("cases", list[object], "Of a `speed`: its cases, each with `against`.")),
)
COMPARE = Document(
    "compare",
    "compare RUN|FILE...",
    "Runs side by side; of a single run beside published figures only `rows` and `published`.",
    field("rows", many(_ROW)),
    sometimes(
        field("metrics", many(_METRIC)),
        field("depths", many(_DEPTH), "Speed by what is in the cache."),
        field("differences", dict[str, list[str]], "What differs between the runs, by topic."),
        of(Comparison, "warnings"),
        field("sentence", str, "The answer in words."),
        field("checks", many(_LIMIT), "Of the options --fail-if-..."),
        field("published", many(PUBLISHED_RUN), "With --against published: by run."),
    ),
)
"""Of several runs: with the fields of `comparison_fields`."""


def comparison_fields(
    comparison: Comparison, summaries: Sequence[QuantSummary], checks: Sequence[LimitCheck] = ()
) -> dict[str, object]:
    """Return what `COMPARE` has of several runs, which letters name in their order, as runs of files have no number."""
    named = enumerate(zip(comparison.names, summaries, strict=True))
    return {
        "rows": [
            _ROW.value(summary, name=name, letter=letter(index), kind=summary.run.head.kind)
            for index, (name, summary) in named
        ],
        "metrics": [_Line(line, comparison, summaries) for line in comparison.lines],
        "depths": [_Line(line, comparison, summaries) for line in comparison.depths],
        "differences": {each.topic: each.lines for each in comparison.differences},
        "warnings": comparison.warnings,
        "sentence": sentence_of(comparison),
        "checks": [_Check(check, comparison) for check in checks],
    }
