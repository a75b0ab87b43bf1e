"""Runs side by side: what differs, a line for each metric with which run is better, and speed by depth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ggbench.decisions.compare.comparison import ComparedLine, Comparison
from ggbench.decisions.compare.show import sentence_of, spread_sentence, versus_sentences
from ggbench.show import UNKNOWN, letter
from ggbench.show.tables import GAP, add_column, new_table

_BETTER = "★"
_VERDICT_WIDTH = 24
"""Minimum width of the verdict column, which wraps."""


class ComparisonReport:
    """Warnings and differences come first; the better value is bold with a star and stated in words.

    Numbers are never cut: where the width does not hold all runs, verdicts go below, then the table is divided.
    """

    def __init__(self, comparison: Comparison, *, answer_first: bool = False) -> None:
        """`answer_first` puts the sentence above the table, for a window that scrolls; else it is the end."""
        self._comparison, self._answer_first = comparison, answer_first

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the parts for the width at hand."""
        comparison = self._comparison
        answer = Text(sentence_of(comparison), style="bold")
        for index, name in enumerate(comparison.names):
            yield Text(f"{letter(index)} ", style="bold") + Text(name)
        yield Text()
        if self._answer_first:
            yield from (answer, Text())
        yield from _notes(comparison)
        yield Text()
        yield from _tables(comparison, options.max_width)
        yield from _depths(comparison, options.max_width)
        yield from (Text(line, "dim") for line in (*versus_sentences(comparison), spread_sentence(comparison)) if line)
        if not self._answer_first:
            yield from (Text(), answer)


def _tables(comparison: Comparison, width: int) -> Iterator[Table | Text]:
    """Yield the table, or several where one is too wide, then the verdicts if they are not in it.

    A metric that no run has, as the speed of searches for the largest n_ctx, is no line.
    """
    comparison = replace(comparison, lines=_shown(comparison.lines))
    if not comparison.lines:
        return
    widths = _run_widths(comparison)
    room = width - max(cell_len(header.plain) for header in _headers(comparison)) - GAP
    if sum(widths) + _VERDICT_WIDTH <= room:
        yield from (_table(comparison, range(len(widths)), has_verdicts=True), Text())
        return
    for part in _parts(widths, room):
        yield from (_table(comparison, part, has_verdicts=False), Text())
    verdicts = [f"{line.header}: {line.verdict}" for line in comparison.lines if line.verdict]
    yield from map(Text, (*verdicts, ""))


def _shown(lines: Sequence[ComparedLine]) -> tuple[ComparedLine, ...]:
    return tuple(line for line in lines if {*line.texts} != {UNKNOWN})


def _depths(comparison: Comparison, width: int) -> Iterator[Table | Text]:
    """Yield speed by depth, a line for each run; further depths in tables of their own where one is too wide."""
    lines = _shown(comparison.depths)
    if not lines:
        return
    widths = [max(cell_len(_marked(text, is_better=True)) for text in line.texts) + GAP for line in lines]
    for part in _parts(widths, width - GAP - 1):
        table = new_table("tok/s by n_depth")
        add_column(table, "")
        for number in part:
            add_column(table, lines[number].header, "right")
        for index in range(len(comparison.names)):
            cells = [(_marked(line.texts[index], is_better=line.better[index]), line.better[index]) for line in lines]
            shown = [Text(cells[number][0], "bold" if cells[number][1] else "") for number in part]
            table.add_row(Text(letter(index)), *shown)
        yield table
    if any(text.startswith("~") for line in lines for text in line.texts):
        yield Text("~ beyond what the run measured, by its line", "dim")
    yield Text()


def _parts(widths: Sequence[int], room: int) -> Iterator[range]:
    """Yield runs of columns that the room holds, each with one at least."""
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
        cells = [
            Text(_marked(line.texts[index], is_better=line.better[index]), "bold" if line.better[index] else "")
            for index in runs
        ]
        table.add_row(header, *cells, *([Text(line.verdict)] if has_verdicts else []))
    return table


def _headers(comparison: Comparison) -> list[Text]:
    return [Text(line.header).append(f" {line.unit}" if line.unit else "", style="dim") for line in comparison.lines]


def _run_widths(comparison: Comparison) -> list[int]:
    by_run = zip(*(line.texts for line in comparison.lines), strict=True)
    return [max(cell_len(_marked(text, is_better=True)) for text in texts) + GAP for texts in by_run]


def _marked(text: str, *, is_better: bool) -> str:
    return f"{_BETTER if is_better else ' '} {text}"


def _notes(comparison: Comparison) -> Iterator[Text | Padding]:
    """Yield the warnings, and a line for each difference under its topic."""
    for warning in comparison.warnings:
        yield Text(f"! {warning}")
    for differences in comparison.differences:
        yield Text(f"{'Different' if differences.lines else 'Same'} {differences.topic}", "bold")
        yield from (Padding(Text(line), (0, 0, 0, 2), expand=False) for line in differences.lines)
