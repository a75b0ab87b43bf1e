"""The Library's inputs that filter the list below them."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Input


class FilterInput(Input):
    """Filters while typing; the footer shows how to leave it, as letters are not keys here."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "To the list", tooltip="Go to the filtered list, or add the path"),
        Binding("escape", "screen.leave", "Clear", tooltip="Clear the filter and leave it"),
        Binding("down", "submit", show=False),
    ]

    def __init__(self, placeholder: str, *, id: str) -> None:
        super().__init__(placeholder=placeholder, id=id, compact=True)
