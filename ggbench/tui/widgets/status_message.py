"""The outcome of the last key, in a line or two above the footer; shown until the next, and selectable by mouse."""

from __future__ import annotations

from rich.text import Text
from textual.widgets import Static

from ggbench.errors import GgbenchError
from ggbench.text import plain


class StatusMessage(Static):
    """Hidden while there is no message."""

    DEFAULT_CSS = """
    StatusMessage { height: auto; max-height: 6; padding: 0 1; background: $boost; }
    StatusMessage.-error { color: $text-error; }
    StatusMessage.-empty { display: none; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False, classes="-empty")

    def show(self, *lines: str, error: bool = False) -> None:
        """Replace the message with these lines."""
        self.set_class(error, "-error")
        self.update(Text("\n".join(map(plain, lines))))
        self.set_class(not lines, "-empty")

    def show_error(self, error: GgbenchError) -> None:
        """Show an error and its hint."""
        self.show(f"✗ {error.message}", *([error.hint] if error.hint else []), error=True)

    def clear(self) -> None:
        """Hide the message."""
        self.show()

    def copy_commands(self, *commands: str) -> None:
        """Copy commands to the clipboard, and show them to be selected by hand: not every terminal allows the copy."""
        # Each on one line: a line break within would run half of it as soon as it is pasted.
        lines = [line for line in map(plain, commands) if line]
        if lines:
            self.app.copy_to_clipboard("\n".join(lines))
            count = "Copied" if len(lines) == 1 else f"Copied {len(lines)} commands"
            what = "it" if len(lines) == 1 else "them"
            self.show(f"{count}. If your terminal blocked that, select {what} here with shift held:", *lines)
        else:
            self.show("These runs have no command." if len(commands) > 1 else "This run has no command.")
