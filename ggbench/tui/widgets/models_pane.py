"""The left side of the Library: models by section and family, their filter, paths to add, and Hub searches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from msgspec.structs import replace
from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from ggbench.models.added_places import (
    add_place,
    add_server,
    forget_place,
    forget_server,
    is_local,
    typed_path,
    typed_server,
)
from ggbench.models.disk import path_argument
from ggbench.text import sanitize
from ggbench.tui.host import TaskScreen, host_of
from ggbench.tui.model_list import ModelEntry, Section, found_models, grouped, named_repo, short_titles
from ggbench.tui.widgets.bars import FilterInput
from ggbench.tui.widgets.figure_list import EndedList
from ggbench.units import counted, format_count

if TYPE_CHECKING:
    from ggbench.hub.repo_records import RepoSummary

_MAX_FOUND = 20
"""Number of repos to list from a Hub search."""

_SEARCH, _ADD, _FAMILY = "search", "add", "family:"
"""Ids of the options that search the Hub and add the path in the filter, and the start of those of families."""
_FOLDED, _UNFOLDED = "▸", "▾"


class ModelList(EndedList):
    """Sections cannot be chosen, and families unfold; the highlight stays on its line while the list changes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right", "fold(False)", "Unfold", show=False, tooltip="Show the models of the family"),
        Binding("left", "fold(True)", "Fold", show=False, tooltip="Hide the models of the family"),
        Binding(
            "enter,space", "select", "Choose", tooltip="Unfold the family, or go to the quants of the model"
        ),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self.entries: dict[str, ModelEntry] = {}
        """The models that match the filter, by key, including those of folded families."""
        self._unfolded: set[str] = set()
        self._listing: tuple[Sequence[ModelEntry], str, str] = (), "", ""
        self._width = 0
        """For which the lines were cut."""

    def on_resize(self, event: events.Resize) -> None:
        if self.option_count and event.size.width != self._width:
            self.show(*self._listing)

    def show(self, entries: Sequence[ModelEntry], text: str, hub_state: str) -> None:
        """Show the entries that match the text; `hub_state` is the state of the search, empty if there is none."""
        self._listing, self._width = (entries, text, hub_state), self.size.width
        shown = [entry for entry in _each_once(entries) if entry.section is Section.HUB or entry.matches(text)]
        repo = named_repo(text)
        if repo is not None and all(entry.model != repo.model for entry in shown):
            shown.append(repo)
        self.entries = {entry.key: entry for entry in shown}
        options = [*self._models(shown), *_offers(text, hub_state)]
        if self.chosen_key not in {option.id for option in options}:
            self.highlighted = None  # so that the first line is highlighted
        self.change(options or [Option(Text("no model matches"), disabled=True)])

    def _models(self, shown: Sequence[ModelEntry]) -> Iterator[Option]:
        room = max(8, (self.size.width or 28) - 3)
        titles = dict(zip(self.entries, short_titles([entry.title for entry in shown], room), strict=True))
        for heading, families in grouped(shown):
            yield Option(Text(heading, style="bold", no_wrap=True, overflow="ellipsis"), disabled=True)
            for family in families:
                key, is_folded = f"{_FAMILY}{family[0].family_key}", False
                if len(families) > 1 and len(family) > 1:
                    is_folded = key not in self._unfolded
                    name = f"{_FOLDED if is_folded else _UNFOLDED} {sanitize(family[0].family)}"
                    yield Option(_line(name, format_count(len(family))), id=key)
                for entry in () if is_folded else family:
                    mark = "✗ " if entry.reason else " "
                    yield Option(_line(f"{mark}{titles[entry.key]}", entry.about), id=entry.key)

    def action_fold(self, is_folded: bool) -> None:
        """Fold or unfold the family at the highlight."""
        key, entry = self.chosen_key or "", self.chosen_entry
        family = f"{_FAMILY}{entry.family_key}" if entry is not None else key
        if (line := self.line_of(family)) is not None and (family in self._unfolded) is is_folded:
            self.highlighted = line
            self.toggle(family)

    def toggle(self, family: str) -> None:
        self._unfolded ^= {family}
        self.show(*self._listing)

    def reveal(self, key: str) -> None:
        """Highlight a model, whose family is unfolded."""
        if self.line_of(key) is None:
            self.toggle(f"{_FAMILY}{self.entries[key].family_key}")
        self.highlighted = self.line_of(key)

    @property
    def is_at_first(self) -> bool:
        """Whether the first line that can be chosen is highlighted."""
        return self.highlighted == next(iter(self.enabled), None)

    @property
    def chosen_entry(self) -> ModelEntry | None:
        """The highlighted model; None if the line is not a model."""
        return self.entries.get(self.chosen_key or "")

    def find(self, wanted: Path | str) -> str | None:
        """Return the key of the first model with this place, file or name; None if there is none."""
        found = (key for key, each in self.entries.items() if wanted in (each.place, *each.files, each.model))
        return next(found, None)


def _each_once(entries: Sequence[ModelEntry]) -> list[ModelEntry]:
    """Return the models; a repo of the Hub that is on this disk is listed there, with all its quants."""
    here = {entry.model for entry in entries if entry.section is Section.DISK}
    on_hub = {entry.model for entry in entries if entry.section is Section.HUB}
    return [
        replace(entry, quants=(), about="")
        if entry.section is Section.DISK and entry.model in on_hub
        else entry
        for entry in entries
        if entry.section is not Section.HUB or entry.model not in here
    ]


def _offers(text: str, hub_state: str) -> Iterator[Option]:
    """Offer to add a path or a server, or else to search the Hub; a word that is also a local path, both."""
    is_place = typed_path(text) is not None or typed_server(text) is not None
    if is_place or (text and is_local(text)):
        yield Option(_line(f"+ add {sanitize(text)}"), id=_ADD)
    if text and not is_place and hub_state != "searching":
        yield Option(_line(f"⌕ search for “{sanitize(text)}”"), id=_SEARCH)
    if hub_state:
        yield Option(Text(f"  {sanitize(hub_state)}", style="italic"), disabled=True)


def _line(text: str, note: str = "") -> Text:
    line = Text(text, no_wrap=True, overflow="ellipsis")
    return line.append(f"  {note}", style="dim") if note else line


class ModelsPane(Vertical):
    """The list and its filter, which also adds places and searches the Hub."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "d,delete", "remove_place", "Remove", show=False,
            tooltip="Remove an added place or server from the list; files stay",
        ),
    ]  # fmt: skip

    @dataclass
    class ModelChosen(Message):
        """A model was highlighted or, if `entered`, chosen by enter or click."""

        entry: ModelEntry
        entered: bool

    @dataclass
    class PlacesChanged(Message):
        """A place or a server was added or removed, as the notice says."""

        notice: str

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._listed: Sequence[ModelEntry] = ()
        self._found: Sequence[ModelEntry] = ()
        self._hub_state = ""
        self._is_complete = False
        self._wanted: Path | str | None = None
        """The model to open once it is listed."""

    def compose(self) -> ComposeResult:
        yield FilterInput("/ filter, path, Hub", id="model-filter")
        yield ModelList(id="models")

    @property
    def models(self) -> ModelList:
        return self.query_one(ModelList)

    @property
    def input(self) -> Input:
        return self.query_one(Input)

    def list_models(self, entries: Sequence[ModelEntry], *, is_complete: bool) -> None:
        """Show the models found without a search; unless `is_complete`, more will follow."""
        is_at_first = self.models.is_at_first
        if is_complete and not self._is_complete and is_at_first:
            self.models.highlighted = None  # not moved by the user: highlight the first of the complete list
        self._listed, self._is_complete = entries, is_complete
        self._show()
        if not is_complete or self._wanted is None:
            return
        wanted, self._wanted = self._wanted, None
        key = self.models.find(wanted)
        if key is None and isinstance(
            wanted, str
        ):  # neither on this disk nor in the catalog: a repo, or a twin
            section = Section.CATALOG if wanted.startswith("twin:") else Section.HUB
            self._found = (ModelEntry(section, wanted, sanitize(wanted)),)
            self._show()
            key = self.models.find(wanted)
        if key is not None:
            self.models.reveal(key)
            self._choose(entered=True)

    def open(self, wanted: Path | str) -> None:
        """Choose the model with this place, file or name once the models have been listed again."""
        self.input.clear()
        self._wanted = wanted

    def enter(self, text: str) -> None:
        """Add a path or a URL via the filter, where it can be corrected."""
        self.input.value = text
        self.screen.set_focus(self.input)
        self._add()

    def show_failure(self) -> bool:
        """Show that the search failed; return False if its text is gone."""
        if self._text:
            self._hub_state = "the search failed"
            self._show()
        return bool(self._text)

    def action_remove_place(self) -> None:
        """Remove the chosen place or server from the list."""
        entry = self.models.chosen_entry
        if entry is None or (entry.place is None and entry.server is None):
            return

        def remove() -> Iterator[str]:
            if entry.server is not None:
                forget_server(entry.server)
                yield f"removed {entry.server} from the list"
            elif entry.place is not None:
                forget_place(entry.place)
                yield f"removed {entry.place} from the list; its files stay"

        self._tasks.perform("place", remove, lambda notice: self.post_message(self.PlacesChanged(notice)))

    @on(OptionList.OptionHighlighted)
    def _look_at(self) -> None:
        self._choose(entered=False)

    @on(OptionList.OptionSelected)
    def _enter(self, event: OptionList.OptionSelected) -> None:
        if event.option_id == _SEARCH:
            self._search()
        elif event.option_id == _ADD:
            self._add()
        elif event.option_id is not None and event.option_id.startswith(_FAMILY):
            self.models.toggle(event.option_id)
        else:
            self._choose(entered=True)

    @on(Input.Changed)
    def _filter(self) -> None:
        self._tasks.forget("place", "search")  # whose text was another
        self._found, self._hub_state = (), ""
        self._show()

    @on(Input.Submitted)
    def _leave(self) -> None:
        """Add the path or the server; else focus the filtered models or, if there are none, search the Hub."""
        if typed_path(self._text) is not None or typed_server(self._text) is not None:
            self._add()
            return
        self.screen.set_focus(self.models)
        if not self.models.entries and self._text:
            (self._add if is_local(self._text) else self._search)()

    @property
    def _tasks(self) -> TaskScreen:
        """The screen, which performs slow tasks and shows why one failed."""
        return cast("TaskScreen", self.screen)

    @property
    def _text(self) -> str:
        return self.input.value.strip()

    def _choose(self, *, entered: bool) -> None:
        if (entry := self.models.chosen_entry) is not None:
            self.post_message(self.ModelChosen(entry, entered))

    def _add(self) -> None:
        """Add the folder, file or server of the text if it has models, remember it, and open it."""
        services, text = host_of(self).services, self._text
        server = typed_server(text)

        def add() -> Iterator[tuple[str | Path, str, str]]:
            if server is not None:
                n_models = len(services.resolve(server))
                add_server(server)
                yield server, server, counted(n_models, "model")
                return
            found = add_place(typed_path(text) or Path(text))
            name = path_argument(found[0].place or found[0].paths[0])
            yield found[0].paths[0], name, counted(len(found), "quant")

        def take(added: tuple[str | Path, str, str]) -> None:
            opened, name, count = added
            self.open(opened)
            self.post_message(
                self.PlacesChanged(f"added {name}: {count}; d in the list on the left removes it")
            )

        self._tasks.perform("place", add, take)

    def _search(self) -> None:
        hub, text = host_of(self).services.hub, self._text

        def search() -> Iterator[Sequence[RepoSummary]]:
            from ggbench.hub.listing import search_repos
            from ggbench.models.reference import engine_of_scheme, parse_model

            if engine_of_scheme(text.partition(":")[0].lower()):
                parse_model(text).require_gguf()  # raises UsageError: these are measured on the command line
            yield search_repos(hub, text, _MAX_FOUND)

        def take(found: Sequence[RepoSummary]) -> None:
            if text == self._text:  # else the filter has changed since
                self._found, self._hub_state = found_models(found), "" if found else "no GGUF repo"
                self._show()

        self._hub_state = "searching"
        self._show()
        self._tasks.perform("search", search, take)

    def _show(self) -> None:
        entries = [*self._listed, *self._found]
        self.models.show(entries, self._text, self._hub_state)
