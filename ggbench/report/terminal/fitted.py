"""A table as wide as the terminal: notes and what all rows share move below it, then columns are left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from ggbench.plain import plain
from ggbench.report.columns import ESSENTIAL, UNKNOWN
from ggbench.report.terminal.layout import GAP, Align, add_column, new_table


@dataclass(frozen=True, slots=True)
class Cells:
    """One column with its texts."""

    header: str
    texts: tuple[str, ...]
    unit: str = ""
    right_aligned: bool = False
    priority: int = ESSENTIAL
    """The highest is left out first, `ESSENTIAL` never."""
    is_note: bool = False
    """Whether the texts are sentences about their row."""
    is_name: bool = False
    """Whether a text says by itself what it is."""

    @property
    def is_empty(self) -> bool:
        """Whether the column says nothing of any row."""
        return all(text in ("", UNKNOWN) for text in self.texts)

    @property
    def is_shared(self) -> bool:
        """Whether it says the same of several rows."""
        return len(self.texts) > 1 and len(set(self.texts)) == 1

    @property
    def width(self) -> int:
        """Characters on the screen, the gap to the next column included."""
        return max(map(cell_len, (self.header, self.unit, *self.texts))) + GAP


def left(header: str, texts: Iterable[str], unit: str = "", priority: int = ESSENTIAL) -> Cells:
    """A column of words."""
    return Cells(header, tuple(map(plain, texts)), unit, priority=priority)


def names(header: str, texts: Iterable[str], priority: int = ESSENTIAL) -> Cells:
    """A column of texts that say by themselves what they are."""
    return Cells(header, tuple(map(plain, texts)), priority=priority, is_name=True)


def right(header: str, texts: Iterable[str], unit: str = "", priority: int = ESSENTIAL) -> Cells:
    """A column of figures."""
    return Cells(header, tuple(texts), unit, right_aligned=True, priority=priority)


def notes(texts: Iterable[str]) -> Cells:
    """The column of sentences about the rows."""
    return Cells("note", tuple(map(plain, texts)), is_note=True)


def fitted_table(
    cells: Sequence[Cells],
    *,
    labels: Sequence[str] | None = None,
    dim: Sequence[bool] | None = None,
    title: str | None = None,
    width: int | None = None,
    caption: str = "",
) -> Table:
    """A table no wider than `width` characters; None keeps every column.

    Where it does not fit, notes go below under their row's label, then what is the same in every row goes there
    once, and then columns are left out, which the caption says. A column of empty notes is never shown.
    The labels are the first column's texts unless given.
    """
    labels = cells[0].texts if labels is None else labels
    kept, below, left_out = _fit([each for each in cells if not (each.is_note and each.is_empty)], width)
    table = new_table(title)
    for each in kept:
        align: Align = "wrap" if each.is_note else "right" if each.right_aligned else "left"
        add_column(table, f"{each.header}\n{each.unit}" if each.unit else each.header, align)
    for index, is_dim in enumerate(dim or [False] * len(labels)):
        table.add_row(*(Text(each.texts[index]) for each in kept), style="dim" if is_dim else "")
    lines = [*_shared(below), *_notes(below, labels)]
    if left_out:
        lines.append(f"left out for width: {', '.join(each.header for each in left_out)}; --json has them all")
    if caption:
        lines.append(caption)
    table.caption = Text("\n".join(lines)) if lines else None
    return table


def _fit(cells: Sequence[Cells], width: int | None) -> tuple[list[Cells], list[Cells], list[Cells]]:
    """What stays in the table, what goes below it, what is left out; each in the order of the columns."""
    kept, below = list(cells), []

    def excess() -> bool:
        return width is not None and sum(each.width for each in kept) - GAP > width

    by_importance = sorted(cells, key=lambda each: (not each.is_note, -each.priority))
    for each in by_importance:
        if excess() and (each.is_note or each.is_shared):
            kept.remove(each)
            below.append(each)
    for each in by_importance:
        if excess() and each in kept and each.priority > ESSENTIAL:
            kept.remove(each)
    return kept, [each for each in cells if each in below], [e for e in cells if e not in kept and e not in below]


def _shared(below: Sequence[Cells]) -> list[str]:
    """`all rows: qwen1.5-7b, n_ctx 512`."""
    facts = [
        each.texts[0] if each.is_name else f"{each.header} {each.texts[0]}"
        for each in below
        if not each.is_note and not each.is_empty
    ]
    return [f"all rows: {', '.join(facts)}"] if facts else []


def _notes(below: Sequence[Cells], labels: Sequence[str]) -> list[str]:
    """`q8_0: out of memory`; what is said of several rows once, as `q4_0, q2_k: some matrices are repacked`."""
    said: dict[str, list[str]] = {}
    for each in below:
        if each.is_note:
            for label, text in zip(labels, each.texts, strict=True):
                if text:
                    said.setdefault(text, []).append(label)
    return [f"{', '.join(about)}: {text}" for text, about in said.items()]
