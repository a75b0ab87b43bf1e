"""Dialogs over a screen: a question, a card to plan for, and help.

A click may arrive again after the answer; Textual would then dismiss the screen below, or quit the app.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

import msgspec
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.command import CommandPalette
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.dom import DOMNode
from textual.events import Click, DescendantFocus, Key
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.widgets import Button, Input, Label, OptionList, Static
from textual.widgets.option_list import Option

from ggbench.decisions.pick.run_commands import FORMS, RunSettings, render
from ggbench.errors import UsageError
from ggbench.machine.description import GIVEN_GPU, describe_machine
from ggbench.machine.known_devices import KnownDevice, known_devices
from ggbench.show.answer import Facts
from ggbench.show.figure import Figure
from ggbench.show.glossary import FORMULA, terms
from ggbench.show.plan import PLAN_FIGURES
from ggbench.show.run_figures import figures
from ggbench.sizing.budget import described_budget, host_text, with_main_memory
from ggbench.sizing.plan_record import Budget
from ggbench.text import has_words, shorten
from ggbench.tui.widgets.bars import KeysFooter
from ggbench.units import GIB, format_bandwidth, format_bytes

Answer = TypeVar("Answer")
_FORM_OF = {
    "sh": "llama-server's command line",
    "preset": "a section for llama-server's --models-preset",
    "llama-swap": "llama-swap's configuration",
    "modelfile": "Ollama's Modelfile",
    "docker": "Docker's command line",
}


class KeyHandled(Message):
    """Follows a key to the app, by way of the widgets that it bubbles through; without one, a dialog has opened."""

    def __init__(self, key: Key | None) -> None:
        super().__init__()
        self.key = key


class Dialog(ModalScreen[Answer]):
    """Accepts one answer and ignores later ones."""

    AUTO_FOCUS = "*"
    CSS_PATH = "dialogs.tcss"

    def __init__(self) -> None:
        super().__init__()
        self.has_opened = False
        """Whether the first widget has the focus."""

    def on_screen_resume(self) -> None:
        self.call_later(self._open)

    def _open(self) -> None:
        self.has_opened = True
        self.post_message(KeyHandled(None))

    def on_mount(self) -> None:
        self.mount(KeysFooter())  # over that of the screen below, whose keys do nothing here

    def on_click(self, event: Click) -> None:
        """Close a dialog without buttons by a click beside it."""
        if event.widget is self and not self.query(Button):
            self.dismiss()

    def dismiss(self, result: Answer | None = None) -> AwaitComplete:
        return super().dismiss(result) if self.is_current else AwaitComplete()


class Palette(CommandPalette):
    """Textual's list of commands or themes, which closes only once."""

    def dismiss(self, result: None = None) -> AwaitComplete:
        return super().dismiss(result) if self.is_current else AwaitComplete()


class ConfirmScreen(Dialog[bool]):
    """Returns True for yes; escape means no, and so does enter unless the answer can be undone."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "Yes"),
        Binding("n,escape", "dismiss(False)", "No"),
        Binding("left,right", "app.focus_next", "Other answer", show=False),
    ]

    def __init__(self, question: str, yes_label: str = "Yes", *, is_harmless: bool = False) -> None:
        """`question` is shown without markup; pass any untrusted text through `sanitize`."""
        super().__init__()
        self._question, self._yes_label = question, yes_label
        self.AUTO_FOCUS = "#yes" if is_harmless else "#no"  # type: ignore[misc]

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Label(self._question, markup=False)
            with Horizontal():
                yield Button(f"{self._yes_label} (y)", id="yes", variant="primary", compact=True)
                yield Button("No (n, esc)", id="no", compact=True)

    @on(DescendantFocus)
    def _say_what_enter_does(self) -> None:
        is_yes = self.focused is not None and self.focused.id == "yes"
        self.query_one(".dialog").border_subtitle = f"⏎ {self._yes_label if is_yes else 'No'}, ← → change"

    @on(Button.Pressed)
    def _answer_with_button(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")


class HelpScreen(Dialog[None]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "dismiss", "Close")]

    def __init__(self, about: Screen[Any]) -> None:
        super().__init__()
        self._about = about

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog") as sheet:
            sheet.border_title, sheet.border_subtitle = "help", "esc close"
            yield Static(self._keys())
            for text in filter(None, (getattr(self._about, "HELP", ""), FORMULA)):
                yield Static(f"\n{text}", markup=False)
            yield Static()
            shown: list[Figure[Any]] = [*figures("w_tokens_per_ms b_ms tok_s bpw"), PLAN_FIGURES["kld"]]
            meanings = [(each.header, each.meaning) for each in shown]
            yield Static(Facts([*meanings, *terms().items()], "Numbers"))

    def _keys(self) -> Facts:
        """Return each action once, with all its keys."""
        keys: dict[str, list[str]] = {"Move": ["↑ ↓ j k"], "Next pane": ["tab"]}
        for active in self._about.active_bindings.values():
            binding = active.binding
            if binding.description and (binding.key, binding.action) not in _textual_bindings(
                type(active.node)
            ):
                what = binding.tooltip or binding.description
                keys.setdefault(what, []).append(self.app.get_key_display(binding))
        texts = {" ".join(dict.fromkeys(" ".join(names).split())): what for what, names in keys.items()}
        return Facts([*texts.items()], "Keys")


def _textual_bindings(kind: type[DOMNode]) -> set[tuple[str, str]]:
    """Return the (key, action) pairs that Textual itself defines, such as moving and copying a selection."""
    return {
        (binding.key, binding.action)
        for each in kind.__mro__
        if each.__module__.startswith("textual.")
        for binding in Binding.make_bindings(each.__dict__.get("BINDINGS", ()))
    }


_TYPED = "typed"


class CardChoice(msgspec.Struct, frozen=True):
    """The GPUs to plan for, as `--gpu` takes them, and after a `+` the main memory, as `--ram` does; empty for this
    machine.
    """

    gpu: str = ""

    @property
    def is_here(self) -> bool:
        return not self.gpu

    def budget(self, limit_bytes: int | None = None) -> Budget:
        """Return the cards' memory, or the limit if that is less; not for this machine. Raises UsageError."""
        gpu, plus, ram = (part.strip() for part in self.gpu.partition("+"))
        ram += "GiB" * ram.isdecimal()
        described = describe_machine([gpu] if gpu else [], ram if plus else None)
        return with_main_memory(described_budget(described, reserve_bytes=None, limit_bytes=limit_bytes))


class FormPicker(Dialog[str | None]):
    """Asks in which form to copy what runs a quant; returns the text, or None if closed."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "Close")]

    def __init__(self, run: RunSettings) -> None:
        super().__init__()
        self._run = run

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as sheet:
            sheet.border_title, sheet.border_subtitle = "copy for", "⏎ copy · esc close"
            yield OptionList(*map(self._option, FORMS), markup=False)

    def on_mount(self) -> None:
        self.query_one(OptionList).action_first()
        super().on_mount()

    def _option(self, form: str) -> Option:
        """Return what a form is for, or why there is none."""
        try:
            render(self._run, form)
        except UsageError as error:
            return Option(Text(error.message), disabled=True)
        return Option(Text(f"{form:<10}  {_FORM_OF[form]}"), id=form)

    @on(OptionList.OptionSelected)
    def _take(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(render(self._run, event.option_id or ""))


def _why_none(text: str) -> str:
    """Return why a text names no machine."""
    try:
        CardChoice(text.strip()).budget()
    except UsageError as error:
        return str(error).removeprefix("--ram ")
    return "no such card"


class CardPicker(Dialog[CardChoice | None]):
    """Asks which memory to plan for; returns the choice, or None if closed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Close"),
        Binding("down", "move(1)", show=False),
        Binding("up", "move(-1)", show=False),
    ]

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as sheet:
            sheet.border_title, sheet.border_subtitle = "plan for which memory", "⏎ choose · esc close"
            yield Label("A card or a size; + adds main memory, else 32 GiB are assumed.")
            yield Input(placeholder="rtx-3090x2; 24GiB@936GB/s; 4090 + 64; 4090 + 64GiB@60GB/s", compact=True)
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
        typed = self.query_one(Input).value.strip()
        self.dismiss(CardChoice(typed if event.option_id == _TYPED else event.option_id or ""))

    def action_move(self, lines: int) -> None:
        options = self.query_one(OptionList)
        (options.action_cursor_down if lines > 0 else options.action_cursor_up)()

    def _show(self, text: str) -> None:
        """Show the typed memory and the cards that match every word; without a word this machine and all cards."""
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options([*self._matching(text)] or [Option(Text(_why_none(text)), disabled=True)])
        options.action_first()

    def _matching(self, text: str) -> Iterator[Option]:
        listed = [device for device in known_devices() if has_words(_searched(device), text)]
        if not text.strip():
            yield Option(Text("this machine"))
        with contextlib.suppress(UsageError):
            typed = CardChoice(text.strip()).budget()
            if typed.device not in {device.name for device in listed} or "+" in text:
                name, host = typed.device.replace(GIVEN_GPU, "a GPU"), host_text(typed)
                memory = " + ".join(filter(None, (format_bytes(typed.memory_bytes), host)))
                speed = (
                    format_bandwidth(typed.bandwidth.bytes_per_s) if typed.bandwidth else "bandwidth unknown"
                )
                yield Option(Text(f"{name} {memory}, {speed}"), id=_TYPED)
        yield from map(_card, listed)


def _card(device: KnownDevice) -> Option:
    figures = f"{format_bytes(device.memory_gib * GIB):>9}  {format_bandwidth(device.bandwidth_gb_s * 1e9)}"
    return Option(Text(f"{shorten(device.name, 34):<34} {figures}"), id=device.id)


def _searched(device: KnownDevice) -> str:
    size = f"{device.memory_gib:g}"
    return f"{device.id} {device.name} {' '.join(device.also)} {size}GiB {size}GB"
