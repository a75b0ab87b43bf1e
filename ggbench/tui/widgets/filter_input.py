"""The inputs of the Library that filter what stands below them."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Input


class FilterInput(Input):
    """Filters as it is typed; the footer tells how to leave it, as letters are no keys here."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "To the list"),
        Binding("escape", "screen.leave", "Clear"),
        Binding("down", "submit", show=False),
    ]

    def __init__(self, placeholder: str, *, id: str) -> None:
        super().__init__(placeholder=placeholder, id=id, compact=True)
