"""The left side of the Library: the list of models, its filter, and the results of a search of the Hub."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input, OptionList

from ggbench.tui.library_models import ModelEntry
from ggbench.tui.widgets.filter_input import FilterInput
from ggbench.tui.widgets.model_list import SEARCH, ModelList


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
        if event.option_id == SEARCH:
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
