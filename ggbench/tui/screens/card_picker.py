"""Asks which memory to plan for: this machine's, a known card's, or a size."""

from __future__ import annotations

from typing import ClassVar

import msgspec
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, Label, OptionList
from textual.widgets.option_list import Option

from ggbench.errors import GgbenchError
from ggbench.machine.gpus import known_gpus
from ggbench.sizing.budget import CARD_RESERVE_BYTES, given_budget
from ggbench.sizing.plan_record import Budget
from ggbench.text import sanitize
from ggbench.tui.screens.dialogs import Dialog
from ggbench.tui.tables import has_words
from ggbench.units import GIB, format_bandwidth, format_bytes, parse_size

_HERE, _SIZE, _CURRENT = "here", "size", "current"


class CardChoice(msgspec.Struct, frozen=True):
    """A card to plan for, by its id or its size; neither means this machine."""

    gpu: str | None = None
    vram_bytes: int | None = None

    @property
    def is_here(self) -> bool:
        """Whether this machine is planned for."""
        return self.gpu is None and self.vram_bytes is None

    def budget(self, limit_bytes: int | None = None) -> Budget:
        """Return the card's memory, or the limit if that is less. Raises UsageError for this machine."""
        return given_budget(
            gpu=self.gpu, vram_bytes=self.vram_bytes, reserve_bytes=None, bandwidth=None, limit_bytes=limit_bytes
        )


class CardPicker(Dialog[CardChoice | None]):
    """Ends with a choice, or with None if it was closed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Close"),
        Binding("down", "move(1)", show=False),
        Binding("up", "move(-1)", show=False),
    ]

    def __init__(self, current: CardChoice) -> None:
        """`current` is what the Library plans for."""
        super().__init__()
        self._current = None if current.is_here else current.budget()

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as sheet:
            sheet.border_subtitle = "enter chooses, esc closes"
            yield Label("Plan for which memory?")
            yield Input(placeholder="a card, such as 4090, or a size, such as 24GiB", compact=True)
            yield OptionList(markup=False)

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        self._show("")

    @on(Input.Changed)
    def _filter(self, event: Input.Changed) -> None:
        self._show(event.value)

    @on(Input.Submitted)
    def _take_first(self) -> None:
        self.query_one(OptionList).action_select()

    @on(OptionList.OptionSelected)
    def _take(self, event: OptionList.OptionSelected) -> None:
        if event.option_id == _HERE:
            self.dismiss(CardChoice())
        elif event.option_id == _SIZE:
            self.dismiss(CardChoice(vram_bytes=parse_size(self.query_one(Input).value)))
        elif event.option_id == _CURRENT:
            self.dismiss(None)
        elif event.option_id is not None:
            self.dismiss(CardChoice(gpu=event.option_id))

    def action_move(self, lines: int) -> None:
        """Move in the list while the input has the focus."""
        options = self.query_one(OptionList)
        if lines > 0:
            options.action_cursor_down()
        else:
            options.action_cursor_up()

    def _show(self, text: str) -> None:
        """Show the cards that match every word; mark the current choice, and highlight it while nothing is typed."""
        options, current = self.query_one(OptionList), self._current
        options.clear_options()
        words = text.casefold().split()
        ids = {gpu.name: gpu.id for gpu in known_gpus()}
        current_id = _HERE if current is None else ids.get(current.device, _CURRENT)

        def add(option_id: str, name: str, figures: str = "") -> None:
            glyph = "●" if option_id == current_id else " "
            options.add_option(Option(Text(f"{glyph} {name:<34} {figures}".rstrip()), id=option_id))

        if all("this".startswith(word) or "machine".startswith(word) for word in words):
            add(_HERE, "this machine")
        if current is not None and current_id == _CURRENT and not words:
            add(_CURRENT, sanitize(current.device), f"{format_bytes(current.memory_bytes):>8}")
        size_bytes = _size(text)
        if size_bytes is not None and size_bytes > CARD_RESERVE_BYTES:
            add(_SIZE, f"a GPU with {format_bytes(size_bytes)}", "no speeds: bandwidth unknown")
        for gpu in known_gpus():
            if has_words(f"{gpu.id} {gpu.name} {gpu.memory_gib:g}GiB {gpu.memory_gib:g}GB", text):
                rate = format_bandwidth(gpu.bandwidth_gb_s * 1e9)
                add(gpu.id, gpu.name, f"{format_bytes(gpu.memory_gib * GIB):>8}  {rate}")
        if options.option_count:
            options.highlighted = 0 if words else options.get_option_index(current_id)
            return
        notice = "no such card; write a size like 24GiB"
        if size_bytes is not None:
            notice = f"too small: a card needs more than the {format_bytes(CARD_RESERVE_BYTES)} that are kept free"
        options.add_option(Option(Text(notice), disabled=True))


def _size(text: str) -> int | None:
    try:
        return parse_size(text) if text.strip() else None
    except GgbenchError:
        return None
