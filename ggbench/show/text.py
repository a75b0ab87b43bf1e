"""Measured quants as CSV for programs and as Markdown for people; neither may run or break what opens it."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

from ggbench.runs.summary import QuantSummary
from ggbench.show.columns import Value, all_columns, column_texts
from ggbench.text import plain

_FORMULA_STARTS = ("=", "+", "-", "@")
"""A spreadsheet takes a cell that begins so for a formula."""
_MARKDOWN = re.compile(r"[\\|`*<>\[\]&~]")


def csv_text(header: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """CSV with a header; None is an empty cell."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return buffer.getvalue()


def rows_as_csv(summaries: Sequence[QuantSummary]) -> str:
    """Every column: unrounded values under its key, in bytes, ms and the like; an empty cell is unknown.

    Text that a spreadsheet would take for a formula gets an apostrophe in front.
    """
    cells = ([_csv_cell(column.value(summary)) for column in all_columns().values()] for summary in summaries)
    return csv_text(list(all_columns()), cells)


def rows_as_markdown(summaries: Sequence[QuantSummary], keys: Sequence[str]) -> str:
    """A GitHub table of the columns' texts, the units in the headers."""
    columns = [all_columns()[key] for key in keys]
    lines = [
        [markdown_escaped(f"{column.header} [{column.unit}]" if column.unit else column.header) for column in columns],
        ["---:" if column.right_aligned else "---" for column in columns],
        *(map(markdown_escaped, cells) for cells in zip(*(column_texts(key, summaries) for key in keys), strict=True)),
    ]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def without_formula(text: str) -> str:
    """Return plain text, with an apostrophe in front where a spreadsheet would take it for a formula."""
    text = plain(text)
    return f"'{text}" if text.lstrip().startswith(_FORMULA_STARTS) else text


def _csv_cell(value: Value) -> Value:
    return without_formula(value) if isinstance(value, str) else value


def markdown_escaped(text: str) -> str:
    """Return plain text that Markdown shows as it is."""
    return _MARKDOWN.sub(lambda match: f"\\{match[0]}", plain(text))


def markdown_code(text: str) -> str:
    """Return plain text as a code span of Markdown, which ends at more backticks than any run of them in the text."""
    shown = plain(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    return f"{fence} {shown} {fence}"
