"""A comparison as an answer for a person, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from ggbench.decisions.compare.comparison import ComparedFigure, Comparison
from ggbench.models.published.selection import NearRow
from ggbench.record import Record
from ggbench.show import UNKNOWN, letter
from ggbench.show.answer import Answer, Facts, Part, Table
from ggbench.show.document import Document
from ggbench.show.figure import Figure
from ggbench.show.words import say
from ggbench.text import in_words, sanitize
from ggbench.units import counted

_BETTER = "★"
_MOST_BESIDE = 4
"""More runs are rows of the table, not columns."""
_MOST_ROWS = 7
_LONGEST_NAME = 24
_MOST_NAMED = 3


def comparison_answer(comparison: Comparison) -> Answer:
    """Return the verdict, a table with a star at the better values, and the conditions; the rest is behind it."""
    front = [line for line in comparison.stated if line.topic and (line.concern or line.compared)][:_MOST_ROWS]
    behind = [line for line in comparison.metrics if line not in front and {*line.texts} != {UNKNOWN}]
    return Answer(
        comparison.sentence,
        comparison.command,
        [*_legend(comparison), comparison_table(comparison, front)],
        [*comparison.warnings[:2], _conditions(comparison)],
        [
            *comparison.warnings[2:],
            Facts([(row.letter, sanitize(row.run.unsteady)) for row in comparison.rows], "Not steady"),
            Facts([(each.topic, each.text) for each in comparison.differences], "Differences"),
            comparison_table(comparison, behind, "More figures"),
            say("compare.rule"),
        ],
    )


def _legend(comparison: Comparison) -> Iterator[Part]:
    """Yield the names of the letters, if they are too long for the table."""
    if any(len(name) > _LONGEST_NAME for name in comparison.names):
        yield Facts([(row.letter, row.name) for row in comparison.rows])


def comparison_table(comparison: Comparison, lines: Sequence[ComparedFigure], title: str = "") -> Table[Any]:
    """Return a row for each figure and a column for each run, with the ratio of two; of many runs, a row for each."""
    is_long = any(len(name) > _LONGEST_NAME for name in comparison.names)
    headers = [row.letter if is_long else f"{row.letter} {row.name}" for row in comparison.rows]
    if len(headers) > _MOST_BESIDE:
        by_line = [
            Figure[int](line.metric, line.header, partial(_cell, line=line), priority=priority)
            for priority, line in enumerate(lines)
        ]
        return Table([Figure[int]("run", "", lambda run: headers[run]), *by_line], range(len(headers)), title)
    columns = [
        Figure[ComparedFigure](letter(run), header, partial(_cell, run)) for run, header in enumerate(headers)
    ]
    if len(headers) == 2:
        columns.append(Figure[ComparedFigure]("ratio", "b / a", _ratio))
    return Table([Figure[ComparedFigure]("metric", "", lambda line: line.header), *columns], lines, title)


def _cell(run: int, line: ComparedFigure) -> str:
    """Return the value, with a star if it is better; less memory may just mean a smaller file."""
    is_better = letter(run) in line.better and line.concern != "memory"
    return f"{line.texts[run]} {_BETTER}" if is_better else line.texts[run]


def _ratio(line: ComparedFigure) -> str:
    """Return `1.41 (1.28–1.54)`, preceded by `undecided`; a reason without a ratio."""
    versus = line.versus[1]
    if versus is None:
        return next(iter(line.left_out), "")
    text = versus.text.replace(" times", "")
    return f"undecided {text}" if line.outcome == "undecided" else text


def _conditions(comparison: Comparison) -> str:
    """Return `The same but for the file; 8 turns.`"""
    found = ("the file" if each.topic == "file" else each.name for each in comparison.differences)
    names = list(dict.fromkeys(found))
    if len(names) > _MOST_NAMED + 1:
        names[_MOST_NAMED:] = [f"{len(names) - _MOST_NAMED} more"]
    turns = {versus.n_turns for line in comparison.metrics for versus in line.versus if versus}
    n_turns = next(filter(None, turns), None)
    n_runs = sum(len(row.run_ids) for row in comparison.rows)
    runs = counted(n_runs, "run") if n_turns is None else counted(n_turns, "turn")
    if not names:
        return say("compare.same_in_all", runs=runs)
    return say("compare.same_but", names=in_words(names), runs=runs)


class NearestRows(Record):
    """The published rows nearest to a run; null if none can be compared."""

    run_id: int | None
    against: Sequence[NearRow] | None


class _Compared(Comparison, kw_only=True):
    published: tuple[NearestRows, ...] = ()


COMPARE = Document(
    "compare",
    "compare RUN|FILE...",
    "Runs side by side, and with --against published the nearest rows of each run.",
    _Compared,
)


def comparison_document(comparison: Comparison, published: Sequence[NearestRows] = ()) -> dict[str, object]:
    """Return the members of `COMPARE`."""
    return msgspec.structs.asdict(comparison) | {"published": published}
