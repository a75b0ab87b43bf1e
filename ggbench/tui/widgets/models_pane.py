"""The left side of the Library: the models, the input that filters them, and what a search of the Hub told."""

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
    """Says which model is looked at or chosen, and when the Hub is to be asked."""

    @dataclass
    class ModelChosen(Message):
        """The highlight came to a model; `entered` where the person chose it."""

        entry: ModelEntry
        entered: bool

    @dataclass
    class SearchAsked(Message):
        """Look for this text on the Hub."""

        text: str

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._listed: Sequence[ModelEntry] = ()
        self._found: Sequence[ModelEntry] = ()
        self._hub_state = ""
        self._is_whole = False

    def compose(self) -> ComposeResult:
        """The input over the list."""
        yield FilterInput("/ filter, or search the Hub", id="model-filter")
        yield ModelList(id="models")

    @property
    def models(self) -> ModelList:
        """The list."""
        return self.query_one(ModelList)

    @property
    def input(self) -> Input:
        """What it is filtered by."""
        return self.query_one(Input)

    def list_models(self, entries: Sequence[ModelEntry], *, is_whole: bool) -> None:
        """Show what needs no search; more comes where that is not the whole."""
        if is_whole and not self._is_whole and self.models.is_at_first:
            self.models.highlighted = None  # nobody has moved it: it goes to what comes first in the whole list
        self._listed, self._is_whole = entries, is_whole
        self._show()

    def show_found(self, text: str, entries: Sequence[ModelEntry]) -> None:
        """Show what the Hub has for a text; dropped where another is typed by now."""
        if text == self._text:
            self._found, self._hub_state = entries, "" if entries else "no such GGUF repo"
            self._show()

    def show_failure(self) -> None:
        """Say that the Hub did not answer."""
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
        """To the models that are left; where none is, the Hub is asked."""
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
        self.post_message(self.SearchAsked(self._text))

    def _show(self) -> None:
        self.models.show([*self._listed, *self._found], self._text, self._hub_state)
