"""The end of what the model says; a twin's is noise, and from a stranger's file it is untrusted text."""

from __future__ import annotations

from rich.text import Text
from textual.widget import Widget

from ggbench.plain import plain

_SOME_TOKENS = 16
"""After so many without a character, none will come."""


class DecodedText(Widget):
    """As many of the last characters as there is room for."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._tail = ""
        self._is_mute = False

    def show(self, text: str, *, n_done: int = 0, is_twin: bool = False) -> None:
        """Take the place of what is there; `n_done` tokens made this text."""
        is_mute = is_twin or n_done >= _SOME_TOKENS
        if (text, is_mute) != (self._tail, self._is_mute):
            self._tail, self._is_mute = text, is_mute
            self.refresh()

    def render(self) -> Text:
        """Wrapped at the widget's width by characters, so that the end is always seen."""
        room = max(1, self.size.width * self.size.height)
        if not self._tail:
            mute = "this file has no tokenizer, so there is no text"
            return Text(mute if self._is_mute else "no text yet")
        return Text(plain(self._tail)[-room:], overflow="fold")
