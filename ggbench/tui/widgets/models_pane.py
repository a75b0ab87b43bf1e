"""The left side of the Library: models by section, their filter, and searches of the Hub."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from ggbench.plain import plain
from ggbench.tui.library_models import ModelEntry, Section, named_repo
from ggbench.tui.widgets.filter_input import FilterInput

_SEARCH = "search"
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
            self.add_option(
                Option(Text(f"⌕ search for “{plain(text)}”", no_wrap=True, overflow="ellipsis"), id=_SEARCH)
            )
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


class ModelsPane(Vertical):
    """Posts which model is highlighted or entered, and requests searches of the Hub."""

    @dataclass
    class ModelChosen(Message):
        """A model was highlighted, or, if `entered`, chosen with enter or a click."""

        entry: ModelEntry
        entered: bool

    @dataclass
    class SearchRequested(Message):
        """Search the Hub for this text."""

        text: str

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._listed: Sequence[ModelEntry] = ()
        self._found: Sequence[ModelEntry] = ()
        self._hub_state = ""
        self._is_complete = False

    def compose(self) -> ComposeResult:
        """Lay out the filter over the list."""
        yield FilterInput("/ filter, or search the Hub", id="model-filter")
        yield ModelList(id="models")

    @property
    def models(self) -> ModelList:
        """The list."""
        return self.query_one(ModelList)

    @property
    def input(self) -> Input:
        """The filter."""
        return self.query_one(Input)

    def list_models(self, entries: Sequence[ModelEntry], *, is_complete: bool) -> None:
        """Show the models that need no search; unless `is_complete`, more follow."""
        if is_complete and not self._is_complete and self.models.is_at_first:
            self.models.highlighted = None  # not moved by the user: highlight the first of the complete list
        self._listed, self._is_complete = entries, is_complete
        self._show()

    def show_found(self, text: str, entries: Sequence[ModelEntry]) -> None:
        """Show the results for a text; they are dropped if the filter has changed since."""
        if text == self._text:
            self._found, self._hub_state = entries, "" if entries else "no matching GGUF repo"
            self._show()

    def show_failure(self) -> None:
        """Show that the search failed."""
        self._hub_state = "the search failed"
        self._show()

    @on(OptionList.OptionHighlighted)
    def _look_at(self) -> None:
        self._choose(entered=False)

    @on(OptionList.OptionSelected)
    def _enter(self, event: OptionList.OptionSelected) -> None:
        if event.option_id == _SEARCH:
            self._search()
        else:
            self._choose(entered=True)

    @on(Input.Changed)
    def _filter(self) -> None:
        self._found, self._hub_state = (), ""
        self._show()

    @on(Input.Submitted)
    def _leave(self) -> None:
        """Focus the filtered models; if there are none, search the Hub."""
        self.models.focus()
        if not self.models.n_models and self._text:
            self._search()

    @property
    def _text(self) -> str:
        return self.input.value.strip()

    def _choose(self, *, entered: bool) -> None:
        if (entry := self.models.chosen_entry) is not None:
            self.post_message(self.ModelChosen(entry, entered))

    def _search(self) -> None:
        self._hub_state = "searching"
        self._show()
        self.post_message(self.SearchRequested(self._text))

    def _show(self) -> None:
        self.models.show([*self._listed, *self._found], self._text, self._hub_state)
