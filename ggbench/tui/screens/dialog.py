"""What lies over a screen until it is answered.

A key pressed twice quickly may be delivered after the answer too. Textual would then take away the screen beneath, or
end the app where that is the last.
"""

from __future__ import annotations

from typing import TypeVar

from textual.await_complete import AwaitComplete
from textual.command import CommandPalette
from textual.screen import ModalScreen

Answer = TypeVar("Answer")


class Dialog(ModalScreen[Answer]):
    """Takes one answer; any later one does nothing."""

    AUTO_FOCUS = "*"

    def dismiss(self, result: Answer | None = None) -> AwaitComplete:
        """Go with this answer, unless one was given."""
        return super().dismiss(result) if self.is_current else AwaitComplete()


class Palette(CommandPalette):
    """Textual's own list of commands or themes, of which one is chosen once."""

    def dismiss(self, result: None = None) -> AwaitComplete:
        """Go, unless it has gone."""
        return super().dismiss(result) if self.is_current else AwaitComplete()
