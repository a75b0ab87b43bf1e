"""Draw runs side by side: the differences, a line for each metric with the better run, and speed by depth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ggbench.decisions.compare.comparison import ComparedLine, Comparison
from ggbench.decisions.compare.estimates import Versus
from ggbench.decisions.compare.show import (
    sentences_of,
    spread_sentence,
    unstated_verdicts,
    verdict_of,
    versus_sentences,
)
from ggbench.show import UNKNOWN, letter
from ggbench.show.tables import GAP, add_column, new_table

_BETTER = "★"
_VERDICT_WIDTH = 24
"""Minimum width of the verdict column, which wraps."""


class ComparisonReport:
    """Warnings and differences, then tables with a star at the better value, then any answer in words.

    Numbers are never cut: if not all runs fit the width, the table is split, and verdicts go below.
    """

    def __init__(self, comparison: Comparison, *, has_answer: bool = True) -> None:
        self._comparison, self._has_answer = comparison, has_answer

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        comparison = self._comparison
        for index, name in enumerate(comparison.names):
            yield Text(f"{letter(index)} ", style="bold") + Text(name)
        yield Text()
        yield from _notes(comparison)
        yield Text()
        yield from _tables(comparison, options.max_width)
        yield from _depths(comparison, options.max_width)
        yield from (Text(line, "dim") for line in (*versus_sentences(comparison), spread_sentence(comparison)) if line)
        if self._has_answer:
            yield Text("\nResult", "bold")
            yield from map(_indented, sentences_of(comparison))


def _tables(comparison: Comparison, width: int) -> Iterator[Table | Text]:
    """Yield the table, or several if one is too wide, then the verdicts if not in it."""
    comparison = replace(comparison, lines=_shown(comparison.lines))
    if not comparison.lines:
        return
    widths = [_width(texts) for texts in zip(*(line.texts for line in comparison.lines), strict=True)]
    room = width - max(cell_len(header.plain) for header in _headers(comparison)) - GAP
    if sum(widths) + _VERDICT_WIDTH <= room:
        yield from (_table(comparison, range(len(widths)), has_verdicts=True), Text())
        return
    for part in _parts(widths, room):
        yield from (_table(comparison, part, has_verdicts=False), Text())
    if verdicts := unstated_verdicts(comparison):
        yield from map(Text, (*verdicts, ""))


def _shown(lines: Sequence[ComparedLine]) -> tuple[ComparedLine, ...]:
    """Return the metrics that some run has."""
    return tuple(line for line in lines if {*line.texts} != {UNKNOWN})


def _depths(comparison: Comparison, width: int) -> Iterator[Table | Text]:
    """Yield speed by depth, a row for each run, as several tables if one is too wide.

    If all were asked for depths, the ratios to the first run follow.
    """
    lines = _shown(comparison.depths)
    if not lines:
        return
    others = range(1, len(comparison.names)) if comparison.asked_depths else ()
    ratios = {index: [_ratio(line.versus[index]) for line in lines] for index in others}
    widths = [_width([*line.texts, *texts]) for line, *texts in zip(lines, *ratios.values(), strict=True)]
    for part in _parts(widths, width - GAP - (len("b / a") if ratios else 1)):
        table = new_table("tok/s by n_depth")
        add_column(table, "")
        for number in part:
            add_column(table, lines[number].header, "right")
        for index in range(len(comparison.names)):
            table.add_row(Text(letter(index)), *(_cell(lines[number], index) for number in part))
        for index, texts in ratios.items():
            table.add_row(Text(f"{letter(index)} / {letter(0)}"), *(Text(f"  {texts[number]}") for number in part))
        yield table
    if any(text.startswith("~") for line in lines for text in line.texts):
        yield Text("~ not measured at this depth: from the run's fitted line", "dim")
    yield Text()


def _ratio(versus: Versus | None) -> str:
    return UNKNOWN if versus is None or not versus.text else versus.text.removesuffix(" times")


def _parts(widths: Sequence[int], room: int) -> Iterator[range]:
    """Yield ranges of columns that fit the width, each with at least one."""
    start = 0
    for stop in range(1, len(widths) + 1):
        if stop == len(widths) or sum(widths[start : stop + 1]) > room:
            yield range(start, stop)
            start = stop


def _table(comparison: Comparison, runs: Sequence[int], *, has_verdicts: bool) -> Table:
    table = new_table()
    add_column(table, "")
    for index in runs:
        add_column(table, letter(index), "right")
    if has_verdicts:
        add_column(table, "", "wrap")
    for line, header in zip(comparison.lines, _headers(comparison), strict=True):
        verdict = [Text(verdict_of(line))] if has_verdicts else []
        table.add_row(header, *(_cell(line, index) for index in runs), *verdict)
    return table


def _cell(line: ComparedLine, run: int) -> Text:
    is_better = line.better[run]
    return Text(f"{_BETTER if is_better else ' '} {line.texts[run]}", "bold" if is_better else "")


def _width(texts: Sequence[str]) -> int:
    return max(map(cell_len, texts)) + len(f"{_BETTER} ") + GAP


def _headers(comparison: Comparison) -> list[Text]:
    return [Text(line.header).append(f" {line.unit}" if line.unit else "", style="dim") for line in comparison.lines]


def _notes(comparison: Comparison) -> Iterator[Text | Padding]:
    for warning in comparison.warnings:
        yield Text(f"! {warning}")
    for topic, lines in comparison.differences.items():
        is_known = not lines or any(" in " in line for line in lines)
        file = f": {comparison.file}" if topic == "file" and comparison.file and not lines else ""
        yield Text(f"{('Different' if is_known else 'Unknown') if lines else 'Same'} {topic}{file}", "bold")
        yield from map(_indented, lines)


def _indented(line: str) -> Padding:
    return Padding(Text(line), (0, 0, 0, 2), expand=False)
