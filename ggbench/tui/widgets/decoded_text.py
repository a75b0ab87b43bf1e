"""The end of what the model says; a twin's is noise, and from a stranger's file it is untrusted text."""

from __future__ import annotations

from rich.text import Text
from textual.widget import Widget

from ggbench.plain import plain


class DecodedText(Widget):
    """As many of the last characters as there is room for."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._tail = ""

    def show(self, text: str) -> None:
        """Take the place of what is there."""
        if text != self._tail:
            self._tail = text
            self.refresh()

    def render(self) -> Text:
        """Wrapped at the widget's width by characters, so that the end is always seen."""
        room = max(1, self.size.width * self.size.height)
        if not self._tail:
            return Text("no text yet; a model without a tokenizer has none")
        return Text(plain(self._tail)[-room:], overflow="fold")
