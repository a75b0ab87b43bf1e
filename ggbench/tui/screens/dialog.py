"""Dialogs over a screen that end with an answer.

A key pressed twice quickly may arrive again after the answer. Textual would then dismiss the screen below, or end the
app if there is none.
"""

from __future__ import annotations

from typing import TypeVar

from textual.await_complete import AwaitComplete
from textual.command import CommandPalette
from textual.screen import ModalScreen

Answer = TypeVar("Answer")


class Dialog(ModalScreen[Answer]):
    """Accepts one answer and ignores later ones."""

    AUTO_FOCUS = "*"

    def dismiss(self, result: Answer | None = None) -> AwaitComplete:
        """Close with this answer unless it is closed already."""
        return super().dismiss(result) if self.is_current else AwaitComplete()


class Palette(CommandPalette):
    """Textual's list of commands or themes, closed once."""

    def dismiss(self, result: None = None) -> AwaitComplete:
        """Close unless it is closed already."""
        return super().dismiss(result) if self.is_current else AwaitComplete()
