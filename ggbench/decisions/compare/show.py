"""A comparison as text, the differences, tables and the verdicts in words, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ggbench.decisions.compare.comparison import Better, ComparedLine, Comparison
from ggbench.decisions.compare.estimates import Versus
from ggbench.decisions.compare.thresholds import LimitCheck
from ggbench.runs.run import Run, RunHead
from ggbench.runs.summary import QuantSummary
from ggbench.show import UNKNOWN, letter
from ggbench.show.document import Document, Shape, field, many, of, sometimes
from ggbench.show.metric import is_extrapolated
from ggbench.show.published import AGAINST
from ggbench.show.run_documents import ENDS, NUMBER, QUANT
from ggbench.show.tables import GAP, add_column, new_table, spaced
from ggbench.stats.intervals import Interval

_BETTER = "★"


class ComparisonReport:
    """Warnings and differences, then tables with a star at the better value, then any answer in words.

    Numbers are never cut: if not all runs fit the width, the table is split.
    """

    def __init__(self, comparison: Comparison, *, has_answer: bool = True) -> None:
        self._comparison, self._has_answer = comparison, has_answer

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        comparison, width = self._comparison, options.max_width
        names = (
            Text(f"{letter(index)} ", style="bold") + Text(name) for index, name in enumerate(comparison.names)
        )
        parts: list[RenderableType] = [
            Group(*names),
            Group(*_notes(comparison)),
            *_metrics(_shown(comparison.lines), width),
            *_depths(_shown(comparison.depths), width),
            *map(Text, _against_the_first(comparison)),
        ]
        if self._has_answer:
            parts.append(Group(Text("Result", "bold"), *map(_indented, comparison.sentences)))
        yield spaced(parts)


def _shown(lines: Sequence[ComparedLine]) -> tuple[ComparedLine, ...]:
    """Return the metrics that some run has."""
    return tuple(line for line in lines if {*line.texts} != {UNKNOWN})


def _metrics(lines: Sequence[ComparedLine], width: int) -> Iterator[Table]:
    """Yield the metrics, a column for each run, as several tables if one is too wide."""
    headers = [Text(f"{line.header} {line.unit}".rstrip(), "dim") for line in lines]
    widths = [_width(texts) for texts in zip(*(line.texts for line in lines), strict=True)]
    for part in _parts(widths, width - max(map(cell_len, map(str, headers)), default=0) - GAP):
        table = new_table()
        add_column(table, "")
        for index in part:
            add_column(table, letter(index), "right")
        for line, header in zip(lines, headers, strict=True):
            table.add_row(header, *(_cell(line, index) for index in part))
        yield table


def _depths(lines: Sequence[ComparedLine], width: int) -> Iterator[Table]:
    """Yield speed by depth, a row for each run, as several tables if one is too wide."""
    for part in _parts([_width(line.texts) for line in lines], width - GAP - 1):
        shown = [lines[number] for number in part]
        table = new_table("tok/s by n_depth")
        add_column(table, "")
        for line in shown:
            add_column(table, line.header, "right")
        for index in range(len(shown[0].texts)):
            table.add_row(Text(letter(index)), *(_cell(line, index) for line in shown))
        if any(text.startswith("~") for line in shown for text in line.texts):
            table.lines_below = (Text("~ not measured at this depth: from the run's fitted line", "dim"),)
        yield table


def _parts(widths: Sequence[int], room: int) -> Iterator[range]:
    """Yield ranges of columns that fit the width, each with at least one."""
    start = 0
    for stop in range(1, len(widths) + 1):
        if stop == len(widths) or sum(widths[start : stop + 1]) > room:
            yield range(start, stop)
            start = stop


def _cell(line: ComparedLine, run: int) -> Text:
    is_better = line.better[run]
    return Text(f"{_BETTER if is_better else ' '} {line.texts[run]}", "bold" if is_better else "")


def _width(texts: Sequence[str]) -> int:
    return max(map(cell_len, texts)) + len(f"{_BETTER} ") + GAP


def _notes(comparison: Comparison) -> Iterator[Text | Padding]:
    for warning in comparison.warnings:
        yield Text(f"! {warning}")
    for topic, lines in comparison.differences.items():
        file = f": {comparison.file}" if topic == "file" and comparison.file else ""
        yield Text(f"{'Different' if lines else 'Same'} {topic}{file}", "bold")
        yield from map(_indented, lines)


def _against_the_first(comparison: Comparison) -> Iterator[str]:
    """Yield how each run differs from the first, if there are three or more.

    `b against a: speed 0.71 ±0.03 times, memory 1.20 times.`
    """
    for index in range(1, len(comparison.names) if len(comparison.names) > 2 else 1):
        pairs = [(line.topic, line.versus[index]) for line in comparison.stated]
        apart = [f"{topic} {found.text}" for topic, found in pairs if found is not None and found.is_different]
        if apart:
            yield f"{letter(index)} against {letter(0)}: {', '.join(apart)}."


def _indented(line: str) -> Padding:
    return Padding(Text(line), (0, 0, 0, 2), expand=False)


_LETTER = "The run's letter in texts: the first is `a`."
_VERSUS = Shape(
    "Versus",
    "A run compared with the first.",
    field("letter", str, _LETTER),
    of(Versus, "ratio"),
    field("ratio_ci95", ENDS),
    of(Versus, "difference"),
    field("difference_ci95", ENDS),
    of(Versus, "is_different"),
)
_METRIC = Shape(
    "Metric",
    "One metric of all runs.",
    of(ComparedLine, "metric=key"),
    field(
        "values",
        list[float | None],
        "Value of each run, or the mean of the `n_runs` averaged; null if unknown.",
    ),
    field(
        "values_ci95", list[Interval | None], "95 % interval of each; null if it has none, or is not compared."
    ),
    field(
        "compared",
        list[int | None],
        "Numbers of the runs whose values can be compared; null for a run that is not stored.",
    ),
    field("better", list[int | None], "Numbers of the runs that are better than another and beaten by none."),
    field("over", int | None, "Number of the next best, if one run is better than all others."),
    field("ratio", NUMBER, "Its value / that of the next best."),
    field("ratio_ci95", ENDS),
    of(ComparedLine, "verdict?"),
    field("versus", many(_VERSUS), "Every other run compared with the first, if both have the metric."),
)
_DEPTH = Shape(
    "Depth",
    "One depth.",
    field("n_depth", int, "Tokens already in the cache."),
    of(ComparedLine, "texts"),
    field(
        "extrapolated", list[str], "Letters of the runs whose speed is from their fitted line, not measured."
    ),
    _METRIC.fields,
)
_LIMIT = Shape(
    "Check",
    "One limit.",
    of(LimitCheck, "limit=option share"),
    field("letter", str, _LETTER),
    of(LimitCheck, "metric=key state worse_by"),
    field("worse_by_ci95", ENDS),
    field("message", str),
)
_NAMED = sometimes(
    field("name", str, "The shortest name that distinguishes the run from the others."),
    field("letter", str, _LETTER),
    of(RunHead, "kind"),
    field("n_runs", int, "Runs averaged in `metrics`; the row is the first."),
)
_ROW = Shape("Row", "One run.", _NAMED, QUANT.without("against"))
PUBLISHED_RUN = Shape(
    "Published",
    "A run and published rows.",
    of(Run, "run_id"),
    AGAINST,
    sometimes(field("cases", list[object], "For a `speed` run: its cases, each with `against`.")),
)
COMPARE = Document(
    "compare",
    "compare RUN|FILE...",
    "Runs side by side; for a single run and published rows, only `rows` and `published`.",
    field("rows", many(_ROW)),
    sometimes(
        field("metrics", many(_METRIC)),
        field("depths", many(_DEPTH), "Speed by the number of tokens in the cache."),
        field("differences", dict[str, list[str]], "The differences between the runs, by topic."),
        of(Comparison, "warnings"),
        field("sentence", str, "The answer in words."),
        field("checks", many(_LIMIT), "Results of the options --fail-if-..."),
        field("published", many(PUBLISHED_RUN), "With --against published: the rows, by run."),
    ),
)


def comparison_fields(
    comparison: Comparison, summaries: Sequence[QuantSummary], checks: Sequence[LimitCheck] = ()
) -> dict[str, object]:
    named = enumerate(zip(comparison.names, summaries, strict=True))
    return {
        "rows": [
            _ROW.value(
                summary,
                name=name,
                letter=letter(index),
                kind=summary.run.head.kind,
                n_runs=comparison.n_runs[index],
            )
            for index, (name, summary) in named
        ],
        "metrics": [_METRIC.value(line, **_of_line(line, comparison)) for line in comparison.lines],
        "depths": [_DEPTH.value(line, **_of_depth(line, comparison, summaries)) for line in comparison.depths],
        "differences": comparison.differences,
        "warnings": comparison.warnings,
        "sentence": " ".join(comparison.sentences),
        "checks": [
            _LIMIT.value(check, letter=letter(check.run), message=check.message(comparison)) for check in checks
        ],
    }


def _of_line(line: ComparedLine, comparison: Comparison) -> dict[str, object]:
    run_ids = comparison.run_ids
    won = next((each for each in line.reasons if isinstance(each, Better)), None)
    versus = [(n, each) for n, each in enumerate(line.versus) if each is not None]
    return {
        "values": line.values,
        "values_ci95": line.ci95,
        "compared": [run_ids[index] for index in line.compared],
        "better": [run_id for run_id, is_better in zip(run_ids, line.better, strict=True) if is_better],
        "over": won and run_ids[won.over],
        "ratio": won and won.ratio,
        "ratio_ci95": won and won.ratio_ci95,
        "versus": [_VERSUS.value(each, letter=letter(n)) for n, each in versus],
    }


def _of_depth(
    line: ComparedLine, comparison: Comparison, summaries: Sequence[QuantSummary]
) -> dict[str, object]:
    n_depth = int(line.key.removeprefix("tok_s_d"))
    beyond = [letter(index) for index, summary in enumerate(summaries) if is_extrapolated(summary, n_depth)]
    return _of_line(line, comparison) | {"n_depth": n_depth, "extrapolated": beyond}
