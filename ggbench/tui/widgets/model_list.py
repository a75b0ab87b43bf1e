"""The Library's list of models by section, with a line that searches the Hub."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from ggbench.plain import plain
from ggbench.tui.library_models import ModelEntry, Section, named_repo

SEARCH = "search"
"""Id of the option that searches the Hub."""


class ModelList(OptionList):
    """Headings cannot be chosen; the highlight stays on its model while the list changes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", show=False),
        Binding("k", "cursor_up", show=False),
        Binding("enter", "select", "Choose"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._entries: dict[str, ModelEntry] = {}

    def show(self, entries: Sequence[ModelEntry], text: str, hub_state: str) -> None:
        """Show the entries that match the text; `hub_state` is the state of the search, empty if there is none."""
        shown = [entry for entry in entries if entry.section is Section.HUB or entry.matches(text)]
        repo = named_repo(text)
        if repo is not None and all(entry.model != repo.model for entry in shown):
            shown.append(repo)
        chosen = self.chosen_key
        self._entries = {entry.key: entry for entry in shown}
        self.clear_options()
        for section, group in groupby(shown, key=lambda entry: entry.section):
            self._add_heading(section.value)
            self.add_options([Option(_line(entry), id=entry.key) for entry in group])
        if text and hub_state != "searching":
            if not any(entry.section is Section.HUB for entry in shown):
                self._add_heading(Section.HUB.value)
            self.add_option(Option(Text(f"⌕ search for “{plain(text)}”", no_wrap=True, overflow="ellipsis"), id=SEARCH))
        if hub_state:
            self.add_option(Option(Text(f"  {plain(hub_state)}", style="italic"), disabled=True))
        if not self.option_count:
            self.add_option(Option(Text("no model matches"), disabled=True))
        self._highlight(chosen)

    @property
    def chosen_key(self) -> str | None:
        """Key of the highlighted line; None if there is none."""
        option = self.highlighted_option
        return None if option is None else option.id

    @property
    def chosen_entry(self) -> ModelEntry | None:
        """The highlighted model; None if the line is not a model."""
        return self._entries.get(self.chosen_key or "")

    @property
    def is_at_first(self) -> bool:
        """Whether the first model is highlighted."""
        return self.chosen_key == next(iter(self._entries), None)

    @property
    def n_models(self) -> int:
        """Number of models shown."""
        return len(self._entries)

    def _add_heading(self, text: str) -> None:
        self.add_option(Option(Text(text, style="bold", no_wrap=True, overflow="ellipsis"), disabled=True))

    def _highlight(self, key: str | None) -> None:
        if key in self._entries:
            self.highlighted = self.get_option_index(key)
        else:
            self.action_first()


def _line(entry: ModelEntry) -> Text:
    line = Text(" ", no_wrap=True, overflow="ellipsis")
    if entry.reason:
        line.append("✗ ")
    line.append(entry.title)
    if entry.about:
        line.append(f"  {entry.about}", style="dim")
    return line
