"""Dialogs that ask for one of several: the memory to plan for, and the form in which to copy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, Label, OptionList
from textual.widgets.option_list import Option

from ggbench.commands.budget_options import BudgetOptions
from ggbench.decisions.pick.run_commands import FORMS, RunSettings, render
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import UsageError
from ggbench.machine.known_devices import KnownDevice, known_devices
from ggbench.show.words import say
from ggbench.text import has_words, shorten
from ggbench.tui.host import machine_budgets
from ggbench.tui.screens.dialogs import Dialog
from ggbench.tui.widgets.bars import key_links, machine_text
from ggbench.units import GIB, format_bandwidth, format_bytes

_TYPED, _HERE = "typed", "this machine"


def _described(text: str) -> BudgetOptions:
    """Return GPUs as `--gpu` takes them and, after a `+`, main memory as `--ram` does; nothing for this machine."""
    gpu, plus, ram = (part.strip() for part in text.partition("+"))
    ram += "GiB" * ram.isdecimal()
    return BudgetOptions(gpu=(gpu,) if gpu else (), ram=ram if plus else None)


class FormPicker(Dialog[None]):
    """Asks in which form to copy what runs a quant, and copies it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "Close")]

    def __init__(self, run: RunSettings) -> None:
        super().__init__()
        self._run = run

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as sheet:
            sheet.border_title, sheet.border_subtitle = "copy for", key_links("⏎ copy · esc close")
            yield OptionList(*map(self._option, FORMS), markup=False)

    def on_mount(self) -> None:
        self.query_one(OptionList).action_first()

    def _option(self, form: str) -> Option:
        """Return what a form is for, or why there is none."""
        try:
            render(self._run, form)
        except UsageError as error:
            return Option(Text(error.message), disabled=True)
        return Option(Text(f"{form:<10}  {say(f'forms.{form}')}"), id=form)

    @on(OptionList.OptionSelected)
    def _copy(self, event: OptionList.OptionSelected) -> None:
        self.app.copy_to_clipboard(render(self._run, event.option_id or ""))
        self.dismiss()


class MemoryPicker(Dialog[BudgetOptions | None]):
    """Asks which memory to plan for; returns the choice, or None if closed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Close"),
        Binding("down", "move('down')"),
        Binding("up", "move('up')"),
    ]

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as sheet:
            sheet.border_title = "plan for which memory"
            sheet.border_subtitle = key_links("⏎ choose · esc close")
            yield Label("A card or a size; + adds main memory, else 32 GiB are assumed.")
            yield Input(placeholder="rtx-3090x2; 24GiB@936GB/s; 4090 + 64; 4090 + 64GiB@60GB/s", compact=True)
            yield OptionList(markup=False)

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        self._show()

    @on(Input.Submitted)
    def _take_first(self) -> None:
        self.query_one(OptionList).action_select()

    @on(OptionList.OptionSelected)
    def _take(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(_described(self._text if event.option_id == _TYPED else event.option_id or ""))

    async def action_move(self, way: str) -> None:
        await self.query_one(OptionList).run_action(f"cursor_{way}")

    @property
    def _text(self) -> str:
        return self.query_one(Input).value.strip()

    @on(Input.Changed)
    def _show(self) -> None:
        """Show this machine, the typed memory and the cards that match every word."""
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options([*self._matching(self._text)])
        options.action_first()

    def _matching(self, text: str) -> Iterator[Option]:
        """Yield what the text names, or why it names nothing."""
        listed = [device for device in known_devices() if has_words(_searched(device), text)]
        if has_words(_HERE, text):
            yield Option(_HERE)
        else:
            try:
                (typed,) = machine_budgets(_described(text), LlamaConfig())
                if typed.device not in {device.name for device in listed} or "+" in text:
                    yield Option(machine_text(typed), id=_TYPED)
            except UsageError as error:
                if not listed:
                    yield Option(str(error).removeprefix("--ram "), disabled=True)
        yield from map(_card, listed)


def _card(device: KnownDevice) -> Option:
    figures = f"{format_bytes(device.memory_gib * GIB):>9}  {format_bandwidth(device.bandwidth_gb_s * 1e9)}"
    return Option(f"{shorten(device.name, 34):<34} {figures}", id=device.id)


def _searched(device: KnownDevice) -> str:
    size = f"{device.memory_gib:g}"
    return f"{device.id} {device.name} {' '.join(device.also)} {size}GiB {size}GB"
