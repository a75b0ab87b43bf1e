"""What came of a key, in a line or two above the footer. It stays until the next, and can be selected by mouse."""

from __future__ import annotations

from rich.text import Text
from textual.widgets import Static

from ggbench.errors import GgbenchError
from ggbench.plain import plain


class Told(Static):
    """Hidden while there is nothing to tell."""

    DEFAULT_CSS = """
    Told { height: auto; max-height: 6; padding: 0 1; background: $boost; }
    Told.-error { color: $text-error; }
    Told.-empty { display: none; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False, classes="-empty")

    def tell(self, *lines: str, error: bool = False) -> None:
        """Show these lines in place of what is there; none hides it."""
        self.set_class(error, "-error")
        self.update(Text("\n".join(map(plain, lines))))
        self.set_class(not lines, "-empty")

    def tell_error(self, error: GgbenchError) -> None:
        """What happened, and what to do."""
        self.tell(f"✗ {error.message}", *([error.hint] if error.hint else []), error=True)

    def offer(self, *commands: str) -> None:
        """Copy commands to the clipboard, and show them to be selected by hand: not every terminal takes it."""
        # Each on one line: a line break within would run half of it as soon as it is pasted.
        lines = [line for line in map(plain, commands) if line]
        if lines:
            self.app.copy_to_clipboard("\n".join(lines))
            count = "Copied" if len(lines) == 1 else f"Copied {len(lines)} commands"
            what = "it" if len(lines) == 1 else "them"
            self.tell(f"{count}; where the terminal refused, select {what} here (with shift held):", *lines)
        else:
            self.tell("There is no command." if len(commands) > 1 else "This run has no command.")
