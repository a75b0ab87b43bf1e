"""For which memory to plan: this machine's, a known card's, or any size that is typed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Label, OptionList
from textual.widgets.option_list import Option

from ggbench.errors import GgbenchError
from ggbench.experiments.budget import given_budget
from ggbench.machine.known_gpus import known_gpus
from ggbench.plan_records import Budget
from ggbench.units import GIB, format_bandwidth, format_bytes, parse_size

_HERE, _SIZE = "here", "size"


@dataclass(frozen=True, slots=True)
class Picked:
    """What was chosen."""

    budget: Budget | None
    """None is this machine."""


class CardPicker(ModalScreen[Picked | None]):
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
        options = self.query_one(OptionList)
        options.clear_options()
        words = text.casefold().split()
        if not words:
            options.add_option(Option(Text("this machine"), id=_HERE))
        for gpu in known_gpus():
            if all(word in f"{gpu.id} {gpu.name}".casefold() for word in words):
                memory = format_bytes(gpu.memory_gib * GIB)
                rate = format_bandwidth(gpu.bandwidth_gb_s * 1e9)
                options.add_option(Option(Text(f"{gpu.name:<34} {memory:>8}  {rate}"), id=gpu.id))
        size_bytes = _size(text)
        if size_bytes is not None:
            options.add_option(Option(Text(f"a GPU with {format_bytes(size_bytes)}"), id=_SIZE))
        if options.option_count:
            options.highlighted = 0
        else:
            options.add_option(Option(Text("no such card; a size is written 24GiB"), disabled=True))


def _size(text: str) -> int | None:
    try:
        return parse_size(text) if text.strip() else None
    except GgbenchError:
        return None
