"""The Library's table of quants: which are shown, in which order, and which are marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from rich.cells import cell_len
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.coordinate import Coordinate
from textual.message import Message
from textual.widgets import DataTable

from ggbench.records import KV_CELLS
from ggbench.tui.variants import COLUMNS, Variant, VariantColumn, sort_variants

_MARKED = "●"
_STEP = 1024
_LARGEST_N_CTX = 1 << 20


class VariantsTable(DataTable[Text]):
    """Rows keep the cursor while they change; left and right are the screen's, brackets scroll the columns."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", show=False),
        Binding("k", "cursor_up", show=False),
        Binding("right_square_bracket", "scroll_columns(12)", "Columns to the right", show=False, key_display="]"),
        Binding("left_square_bracket", "scroll_columns(-12)", "Columns to the left", show=False, key_display="["),
        Binding("left", "change(-1)", show=False),
        Binding("right", "change(1)", "n_ctx×2", key_display="←→", tooltip="Half or twice the n_ctx that is planned"),
        Binding("shift+left", "step(-1)", "n_ctx −1,024", show=False),
        Binding("shift+right", "step(1)", "n_ctx +1,024", show=False),
    ]

    class ContextAsked(Message):
        """Another n_ctx is wanted: so many doublings, and so many steps, from what is planned."""

        def __init__(self, doublings: int, steps: int) -> None:
            super().__init__()
            self._doublings, self._steps = doublings, steps

        def applied_to(self, n_ctx: int, n_ctx_train: int | None) -> int:
            """What becomes of an n_ctx, between the least and the largest that is of use with the model."""
            wanted = round(n_ctx * 2.0**self._doublings) + self._steps * _STEP
            return min(max(wanted, KV_CELLS), max(_LARGEST_N_CTX, n_ctx_train or 0))

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, cursor_type="row", zebra_stripes=False, fixed_columns=1)
        self._variants: Sequence[Variant] = ()
        self._shown: list[Variant] = []
        self._marks: dict[str, None] = {}
        self._words: tuple[str, ...] = ()
        self._sort_index: int | None = None
        """Of COLUMNS; None leaves the order of the model."""
        self._is_backwards = False
        self.is_fits_only = False

    def on_mount(self) -> None:
        """Draw the header."""
        self._draw()

    def show(self, variants: Mapping[str, Variant], marks: dict[str, None]) -> None:
        """These quants; `marks` are the names of those that are marked, which `mark` changes."""
        self._variants, self._marks = tuple(variants.values()), marks
        self._draw()

    @property
    def chosen(self) -> Variant | None:
        """Under the cursor; None where there is nothing."""
        return self._shown[self.cursor_row] if 0 <= self.cursor_row < len(self._shown) else None

    @property
    def n_shown(self) -> int:
        """Quants in the table."""
        return len(self._shown)

    @property
    def n_hidden(self) -> int:
        """Quants that match the filter and are left out because they do not fit."""
        return sum(self._matches(variant) for variant in self._variants) - self.n_shown

    @property
    def n_filtered(self) -> int:
        """Quants that do not match the filter."""
        return sum(not self._matches(variant) for variant in self._variants)

    def filter(self, text: str) -> None:
        """Show those whose name has all the words."""
        self._words = tuple(text.casefold().split())
        self._draw()

    def toggle_fits(self) -> None:
        """Leave out what does not fit, or show it again."""
        self.is_fits_only = not self.is_fits_only
        self._draw()

    def toggle_mark(self) -> None:
        """Mark the chosen quant, or take its mark away, and go on to the next."""
        if (chosen := self.chosen) is None:
            return
        if chosen.name in self._marks:
            del self._marks[chosen.name]
        else:
            self._marks[chosen.name] = None
        self._draw()
        self.action_cursor_down()

    def sort_by(self, index: int) -> None:
        """Sort by a column; once more the other way round."""
        self._is_backwards = index == self._sort_index and not self._is_backwards
        self._sort_index = index
        self._draw()

    def sort_by_next(self) -> None:
        """Sort by the column after the one that it is sorted by."""
        self.sort_by(0 if self._sort_index is None else (self._sort_index + 1) % len(COLUMNS))

    def sort_backwards(self) -> None:
        """Turn the order round."""
        self.sort_by(self._sort_index or 0)

    def action_scroll_columns(self, cells: int) -> None:
        """Move what is seen of a wide table."""
        self.scroll_relative(x=cells, animate=False)

    def action_change(self, doublings: int) -> None:
        """Ask for a context of twice or half the length."""
        self.post_message(self.ContextAsked(doublings, 0))

    def action_step(self, steps: int) -> None:
        """Ask for a context that is 1,024 tokens longer or shorter."""
        self.post_message(self.ContextAsked(0, steps))

    def _matches(self, variant: Variant) -> bool:
        return all(word in variant.name.casefold() for word in self._words)

    def _draw(self) -> None:
        chosen, top = self.chosen, self.scroll_offset
        shown = [
            variant
            for variant in self._variants
            if self._matches(variant) and not (self.is_fits_only and variant.plan.fits is False)
        ]
        if self._sort_index is not None:
            shown = sort_variants(shown, COLUMNS[self._sort_index], backwards=self._is_backwards)
        self._shown = shown
        lines = [_texts(variant, is_marked=variant.name in self._marks) for variant in shown]
        self._draw_columns(lines)
        for variant, line in zip(shown, lines, strict=True):
            style = "" if variant.plan.fits else "dim"
            cells = zip(line, COLUMNS, strict=True)
            self.add_row(*(Text(text, style=style, justify=_side(column)) for text, column in cells))
        names = [variant.name for variant in shown]
        if chosen is not None and chosen.name in names:
            self.cursor_coordinate = Coordinate(names.index(chosen.name), 0)
        self.scroll_to(top.x, top.y, animate=False, force=True)

    def _draw_columns(self, lines: Sequence[Sequence[str]]) -> None:
        """Each as wide as what stands in it; left to itself the table would draw them narrow first."""
        self.clear(columns=True)
        for index, column in enumerate(COLUMNS):
            arrow = ""
            if index == self._sort_index:
                arrow = " ↓" if column.falls != self._is_backwards else " ↑"
            header = f"{'' if index else '  '}{column.header}{arrow}"
            width = max(cell_len(text) for text in (header, *(line[index] for line in lines)))
            self.add_column(Text(header, justify=_side(column)), key=column.key, width=width)


def _texts(variant: Variant, *, is_marked: bool) -> list[str]:
    name, *others = (column.text(variant) for column in COLUMNS)
    return [f"{_MARKED if is_marked else ' '} {name}", *others]


def _side(column: VariantColumn) -> Literal["left", "right"]:
    return "right" if column.right_aligned else "left"
