"""The end of the decoded text; a twin's is noise, and any file's is untrusted."""

from __future__ import annotations

from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget

from ggbench.text import plain

_SOME_TOKENS = 16
"""If that many tokens gave no character, the file has no tokenizer."""


class DecodedText(Widget):
    """The last characters that fit."""

    text = reactive("")
    has_no_text = reactive(False)

    def show(self, text: str, *, n_done: int = 0, is_twin: bool = False) -> None:
        """Show the text of the first `n_done` tokens."""
        self.text, self.has_no_text = text, is_twin or n_done >= _SOME_TOKENS

    def render(self) -> Text:
        """Return the end of the text, wrapped by characters at the widget's width."""
        room = max(1, self.size.width * self.size.height)
        if not self.text:
            notice = "this file has no tokenizer, so there is no text"
            return Text(notice if self.has_no_text else "no text yet")
        return Text(plain(self.text)[-room:], overflow="fold")
