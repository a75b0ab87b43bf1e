"""Dialogs over a screen: a question, and help.

A click may arrive again after the answer; Textual would then dismiss the screen below, or quit the app.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.command import CommandPalette
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.events import Click, Key
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.widgets import Button, Label, Static

from ggbench.tui.widgets.bars import key_links

Answer = TypeVar("Answer")


class KeyHandled(Message):
    """Follows a key to the app, by way of the widgets that it bubbles through; without one, a dialog has opened."""

    def __init__(self, key: Key | None) -> None:
        super().__init__()
        self.key = key


class Dialog(ModalScreen[Answer]):
    """Accepts one answer and ignores later ones."""

    AUTO_FOCUS = "*"

    def __init__(self) -> None:
        super().__init__()
        self.has_opened = False
        """Whether the first widget has the focus."""

    def on_screen_resume(self) -> None:
        self.call_later(self._open)

    def _open(self) -> None:
        self.has_opened = True
        self.post_message(KeyHandled(None))

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
        Binding("left,right", "app.focus_next", "Other answer"),
    ]

    def __init__(self, question: str, yes_label: str = "Yes", *, is_harmless: bool = False) -> None:
        """`question` is shown without markup; pass any untrusted text through `sanitize`."""
        super().__init__()
        self._question, self._yes_label = question, yes_label
        self.AUTO_FOCUS = "#yes" if is_harmless else "#no"  # type: ignore[misc]

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as sheet:
            sheet.border_subtitle = key_links("⏎ choose · ← → change")
            yield Label(self._question, markup=False)
            with Horizontal():
                yield Button(f"{self._yes_label} (y)", id="yes", variant="primary", compact=True)
                yield Button("No (n, esc)", id="no", compact=True)

    @on(Button.Pressed)
    def _answer_with_button(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")


class HelpScreen(Dialog[None]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "dismiss", "Close")]

    def __init__(self, about: Screen[Any]) -> None:
        super().__init__()
        self._about = about

    def compose(self) -> ComposeResult:
        from ggbench.show.answer import Facts
        from ggbench.show.glossary import FORMULA, terms
        from ggbench.show.plan import PLAN_FIGURES
        from ggbench.show.run_figures import figures
        from ggbench.show.words import say

        with VerticalScroll(classes="dialog") as sheet:
            sheet.border_title, sheet.border_subtitle = "help", key_links("esc close")
            yield Static(Facts(self._keys(), "Keys"))
            for text in (say(f"help.{self.app.current_mode}"), FORMULA):
                yield Static(f"\n{text}", markup=False)
            yield Static()
            shown: list[Any] = [*figures("w_tokens_per_ms b_ms tok_s bpw"), PLAN_FIGURES["kld"]]
            meanings = [(each.header, each.meaning) for each in shown]
            yield Static(Facts([*meanings, *terms().items()], "Numbers"))

    def _keys(self) -> list[tuple[str, str]]:
        """Return each action once, with all its keys."""
        keys: dict[str, list[str]] = {"Move": ["↑ ↓ j k"], "Next panel": ["tab"]}
        for active in self._about.active_bindings.values():
            if about := active.binding.tooltip:  # Textual's own have none
                keys.setdefault(about, []).append(self.app.get_key_display(active.binding))
        return [(" ".join(dict.fromkeys(names)), about) for about, names in keys.items()]
