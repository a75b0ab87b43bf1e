"""For which memory to plan: this machine's, a known card's, or any size that is typed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, Label, OptionList
from textual.widgets.option_list import Option

from ggbench.errors import GgbenchError
from ggbench.experiments.budget import CARD_RESERVE_BYTES, given_budget
from ggbench.machine.known_gpus import known_gpus
from ggbench.plain import plain
from ggbench.plan_records import Budget
from ggbench.tui.screens.dialog import Dialog
from ggbench.units import GIB, format_bandwidth, format_bytes, parse_size

_HERE, _SIZE, _PRESENT = "here", "size", "present"


@dataclass(frozen=True, slots=True)
class Picked:
    """What was chosen."""

    budget: Budget | None
    """None is this machine."""


class CardPicker(Dialog[Picked | None]):
    """Ends with a choice, or with None where the person left it."""

    DEFAULT_CSS = """
    CardPicker OptionList { height: auto; max-height: 14; border: none; }
    CardPicker Input { margin: 1 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Close"),
        Binding("down", "move(1)", show=False),
        Binding("up", "move(-1)", show=False),
    ]

    def __init__(self, present: Budget | None = None) -> None:
        """`present` is what is planned for now; None is this machine."""
        super().__init__()
        self._present = present

    def compose(self) -> ComposeResult:
        """An input over the list that it filters."""
        with Vertical(classes="dialog") as sheet:
            sheet.border_subtitle = "enter chooses, esc closes"
            yield Label("Plan for which memory?")
            yield Input(placeholder="a card, as 4090, or a size, as 24GiB", compact=True)
            yield OptionList(markup=False)

    def on_mount(self) -> None:
        """All of them, the input ready."""
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
            self.dismiss(Picked(None))
        elif event.option_id == _SIZE:
            size = parse_size(self.query_one(Input).value)
            self.dismiss(Picked(given_budget(gpu=None, vram_bytes=size, reserve_bytes=None, bandwidth=None)))
        elif event.option_id == _PRESENT:
            self.dismiss(None)
        elif event.option_id is not None:
            self.dismiss(Picked(given_budget(gpu=event.option_id, vram_bytes=None, reserve_bytes=None, bandwidth=None)))

    def action_move(self, lines: int) -> None:
        """Move in the list while the input has the keys."""
        options = self.query_one(OptionList)
        if lines > 0:
            options.action_cursor_down()
        else:
            options.action_cursor_up()

    def _show(self, text: str) -> None:
        """What has all the words; the present choice is marked, and highlighted while nothing is typed."""
        options, present = self.query_one(OptionList), self._present
        options.clear_options()
        words = text.casefold().split()
        ids = {gpu.name: gpu.id for gpu in known_gpus()}
        present_id = _HERE if present is None else ids.get(present.device, _PRESENT)

        def add(option_id: str, name: str, figures: str = "") -> None:
            glyph = "●" if option_id == present_id else " "
            options.add_option(Option(Text(f"{glyph} {name:<34} {figures}".rstrip()), id=option_id))

        if all("this".startswith(word) or "machine".startswith(word) for word in words):
            add(_HERE, "this machine")
        if present is not None and present_id == _PRESENT and not words:
            add(_PRESENT, plain(present.device), f"{format_bytes(present.memory_bytes):>8}")
        for gpu in known_gpus():
            if all(word in f"{gpu.id} {gpu.name}".casefold() for word in words):
                rate = format_bandwidth(gpu.bandwidth_gb_s * 1e9)
                add(gpu.id, gpu.name, f"{format_bytes(gpu.memory_gib * GIB):>8}  {rate}")
        size_bytes = _size(text)
        if size_bytes is not None and size_bytes > CARD_RESERVE_BYTES:
            add(_SIZE, f"a GPU with {format_bytes(size_bytes)}")
        if options.option_count:
            options.highlighted = 0 if words else options.get_option_index(present_id)
            return
        told = "no such card; a size is written 24GiB"
        if size_bytes is not None:
            told = f"too small: {format_bytes(CARD_RESERVE_BYTES)} of a card are kept free, so it has to have more"
        options.add_option(Option(Text(told), disabled=True))


def _size(text: str) -> int | None:
    try:
        return parse_size(text) if text.strip() else None
    except GgbenchError:
        return None
