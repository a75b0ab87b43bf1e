"""Asks before a search for the largest context fills nearly all memory, and offers a limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Button, Input, Label, Static

from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import UsageError
from ggbench.sizing.plan_record import Budget
from ggbench.text import plain
from ggbench.tui.screens.dialogs import Dialog
from ggbench.units import format_bytes, format_count, parse_size


class SearchDialog(Dialog["LlamaConfig | None"]):
    """Ends with the setup, limited if the user gave a limit, or with None for no search."""

    AUTO_FOCUS = "Input"
    DEFAULT_CSS = """
    SearchDialog {
        Label { width: 1fr; margin-bottom: 1; }
        Horizontal { height: auto; }
        #limit { height: 1; margin-bottom: 1; }
        #limit Label { width: 15; margin: 0; }
        Input { width: 1fr; padding: 0 1; background: $panel; }
        Button { margin-right: 2; }
        #problem { color: $text-error; display: none; margin-bottom: 1; }
        #problem.-shown { display: block; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "No")]

    def __init__(self, names: Sequence[str], budget: Budget, setup: LlamaConfig) -> None:
        """`names` are the quants to search, `budget` the memory of this machine."""
        super().__init__()
        self._names, self._budget, self._setup = names, budget, setup

    def compose(self) -> ComposeResult:
        """Lay out what the search does over the limit and the two answers."""
        with Vertical(classes="dialog"):
            yield Label(_question(self._names, self._budget), markup=False)
            with Horizontal(id="limit"):
                yield Label("memory limit", markup=False)
                yield Input(placeholder="none; or a size for this search, e.g. 12GiB", compact=True)
            yield Static(id="problem", markup=False)
            with Horizontal():
                yield Button("Search (enter)", id="yes", variant="primary", compact=True)
                yield Button("No (esc)", id="no", compact=True)

    @on(Input.Submitted)
    @on(Button.Pressed, "#yes")
    def _search(self) -> None:
        text = self.query_one(Input).value
        try:
            limit = parse_size(text) if text.strip() else None
        except UsageError as error:
            self.query_one("#problem", Static).update(plain(f"✗ {error.message}; {error.hint}"))
            self.query_one("#problem").add_class("-shown")
            self.query_one(Input).focus()
            return
        self.dismiss(replace(self._setup, memory_limit_bytes=limit))

    @on(Button.Pressed, "#no")
    def _leave(self) -> None:
        self.dismiss(None)


def _question(names: Sequence[str], budget: Budget) -> str:
    what = plain(names[0]) if len(names) == 1 else f"{format_count(len(names))} quants, one after another"
    place = "GPU memory" if budget.on_gpu else "main memory"
    time = (
        "It takes a minute or so for each quant."
        if budget.on_gpu
        else "It takes minutes for each quant; a long context that fills the memory, up to an hour."
    )
    return (
        f"Search the maximum n_ctx of {what}?\n\n"
        f"Without a limit it takes nearly all free memory: {format_bytes(budget.memory_bytes)} of {place} are free, "
        f"and contexts grow until one fails. Other programs may get slow or be closed meanwhile. {time}"
    )
