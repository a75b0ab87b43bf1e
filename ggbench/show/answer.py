"""What a command prints: the answer first, then what to type, a table, notes, and with `--why` the rest.

The same answer is text for a terminal, plain text for a pipe, and GitHub's Markdown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeAlias

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table as Grid
from rich.text import Text

from ggbench.record import Record
from ggbench.show import ESSENTIAL, UNKNOWN
from ggbench.show.figure import Figure, Row
from ggbench.show.text import markdown_escaped
from ggbench.text import sanitize

_GAP = 2
_MOST_NOTES = 3


class Table(Record, Generic[Row]):
    """Rows by figures, no wider than its place; a figure that no row has is left out."""

    figures: Sequence[Figure[Row]]
    rows: Sequence[Row]
    title: str = ""
    style: Callable[[Row], str] = lambda row: ""
    """A rich style of a row, such as `dim` or `bold`."""

    def __bool__(self) -> bool:
        return bool(self._all())

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.title:
            yield Text(sanitize(self.title), "bold")
        yield from self.lines(options.max_width)

    def lines(self, width: int) -> Iterator[Text]:
        """Yield the header and each row, with the columns that fit into `width`."""
        columns = self.columns(width)
        yield _line(columns, [column.header for column in columns], "bold")
        for index, row in enumerate(self.rows):
            yield _line(columns, [column.texts[index] for column in columns], self.style(row))

    def markdown(self) -> str:
        """Return the table with every column, and no padding."""
        columns = self._all()
        lines = [[column.header for column in columns]]
        lines += [list(texts) for texts in zip(*(column.texts for column in columns), strict=True)]
        head, *body = [" ".join(f"| {' | '.join(map(markdown_escaped, line))} |".split()) for line in lines]
        rule = f"|{'|'.join('---' if column.is_text else '--:' for column in columns)}|"
        return _titled(self.title, head, rule, *body)

    def columns(self, width: int) -> list[Column]:
        """Return the columns that fit into `width`: the least important are left out first."""
        return _fitting(self._all(), width)

    def _all(self) -> list[Column]:
        made = [Column.of(figure, self.rows) for figure in self.figures]
        return [column for column in made if not {*column.texts} <= {"", UNKNOWN}]


class Column(Record):
    """The texts of a figure."""

    header: str
    texts: tuple[str, ...]
    priority: int
    is_text: bool
    width: int

    @classmethod
    def of(cls, figure: Figure[Any], rows: Sequence[Any]) -> Column:
        is_text = not figure.is_number and any(isinstance(figure.get(row), str | bool) for row in rows)
        texts = tuple(map(figure.text, rows))
        width = max(map(cell_len, (figure.title, *texts)))
        return cls(figure.title, texts, figure.priority, is_text, width)


def _fitting(columns: Sequence[Column], width: int) -> list[Column]:
    """Return the columns without those of the highest priority numbers, the last first, until the rest fit."""
    kept = list(columns)
    droppable = sorted((each for each in kept if each.priority > ESSENTIAL), key=lambda each: each.priority)
    while droppable and sum(each.width + _GAP for each in kept) - _GAP > width:
        kept.remove(droppable.pop())
    return kept


def _line(columns: Sequence[Column], texts: Sequence[str], style: str) -> Text:
    cells = []
    for column, text in zip(columns, texts, strict=True):
        blanks = " " * (column.width - cell_len(text))
        cells.append(text + blanks if column.is_text else blanks + text)
    return Text((" " * _GAP).join(cells).rstrip(), style, no_wrap=True, overflow="ignore")


class Facts(Record):
    """Names with texts; those with an empty text are left out."""

    items: Sequence[tuple[str, str]]
    title: str = ""

    def __bool__(self) -> bool:
        return bool(self._shown)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        grid = Grid.grid(padding=(0, _GAP, 0, 0))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for name, text in self._shown:
            grid.add_row(Text(name), Text(text))
        if self.title:
            yield Text(sanitize(self.title), "bold")
        yield grid

    def markdown(self) -> str:
        said = (f"{name}: {text}" if name else text for name, text in self._shown)
        return _titled(self.title, *(f"* {markdown_escaped(each)}" for each in said))

    @property
    def _shown(self) -> list[tuple[str, str]]:
        return [(sanitize(name), sanitize(text)) for name, text in self.items if text]


class Command(Record):
    """A line for a shell, which is pasted, so it never wraps, and nothing else is on it."""

    text: str
    title: str = ""

    def __bool__(self) -> bool:
        return bool(self.text)

    def __rich__(self) -> Text:
        title = f"{sanitize(self.title)}\n" if self.title else ""
        return Text.assemble((title, "bold"), sanitize(self.text), no_wrap=True, overflow="ignore")

    def markdown(self) -> str:
        return _titled(self.title, "```sh", sanitize(self.text), "```")


Part: TypeAlias = "Table[Any] | Facts | Command | str"


class Answer(Record):
    text: str
    """The answer in a sentence; empty if the table is all of it."""
    command: str = ""
    """What to type next; one line for a shell."""
    parts: Sequence[Part] = ()
    notes: Sequence[str] = ()
    """Each changes what a person would do, the most important first; those after the third are behind the answer."""
    why: Sequence[Part] = ()
    """Sources, rules, rejected candidates, and all details."""

    def __rich__(self) -> Group:
        return self.rich()

    def rich(self, *, why: bool = False) -> Group:
        """Return the answer for a terminal, with everything behind it if `why`."""
        head: list[RenderableType] = [Text(sanitize(self.text), "bold")] if self.text else []
        if self.command:
            head.append(Command(self.command))
        notes = [Text(sanitize(note)) for note in self._front_notes]
        behind = self._behind if why else ()
        blocks: list[Sequence[RenderableType]] = [head, *([_rich(part)] for part in self.parts if part), notes]
        blocks += [[_rich(part)] for part in behind if part]
        return Group(*_spaced(blocks))

    def markdown(self, *, why: bool = False) -> str:
        """Return the answer in GitHub's Markdown."""
        blocks = [f"**{markdown_escaped(self.text)}**" if self.text else ""]
        blocks += [_markdown(part) for part in (Command(self.command), *self.parts) if part]
        blocks.append("\n".join(f"- {markdown_escaped(note)}" for note in self._front_notes))
        blocks += [_markdown(part) for part in (self._behind if why else ()) if part]
        return "\n\n".join(filter(None, blocks))

    @property
    def _front_notes(self) -> Sequence[str]:
        return [*filter(None, self.notes)][:_MOST_NOTES]

    @property
    def _behind(self) -> Sequence[Part]:
        return (*[*filter(None, self.notes)][_MOST_NOTES:], *self.why)


def _titled(title: str, *lines: str) -> str:
    head = [f"**{markdown_escaped(title)}**", ""] if title else []
    return "\n".join([*head, *lines])


def _rich(part: Part) -> RenderableType:
    return Text(sanitize(part)) if isinstance(part, str) else part


def _markdown(part: Part) -> str:
    return markdown_escaped(part) if isinstance(part, str) else part.markdown()


def _spaced(blocks: Sequence[Sequence[RenderableType]]) -> Iterator[RenderableType]:
    """Yield the lines of the blocks that are not empty, with a blank line between two."""
    for index, block in enumerate(filter(None, blocks)):
        if index:
            yield Text()
        yield from block
