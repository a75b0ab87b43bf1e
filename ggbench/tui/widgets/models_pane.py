"""The left side of the Library: models by section and family, their filter, paths to add, and Hub searches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from msgspec.structs import replace
from rich.style import Style
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input, Tree
from textual.widgets.tree import TreeNode

from ggbench.models.added_places import add_place, forget_place, is_local, typed_path
from ggbench.models.disk import path_argument
from ggbench.text import sanitize, shorten_middle
from ggbench.tui.host import TaskScreen, host_of
from ggbench.tui.model_list import ListLine, ModelEntry, Section, found_models, lines_of, named_repo
from ggbench.tui.widgets.bars import FilterInput, key_links
from ggbench.units import counted

if TYPE_CHECKING:
    from ggbench.hub.repo_records import RepoSummary

_MAX_FOUND = 20
"""Number of repos to list from a Hub search."""

_SEARCH, _ADD = "search", "add"
"""Keys of the lines that search the Hub and add the path in the filter."""
_LEAST_TITLE = 8


class ModelTree(Tree[ListLine]):
    """Models below their sections and families; a changed list keeps the cursor and what is folded."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "cursor_parent", "Family", tooltip="Go to the line above, which enter folds"),
        Binding("enter", "select_cursor", "Open", tooltip="Fold or unfold the line, or go to its quants"),
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__("", id=id)
        self.show_root, self.show_guides, self.guide_depth = False, False, 2
        self.lines: dict[str, TreeNode[ListLine]] = {}
        self._open: dict[str, bool] = {}
        """Whether each section and family was unfolded before the filter."""
        self._is_filtered = False

    @property
    def entries(self) -> list[ModelEntry]:
        """The listed models, including those of folded families."""
        return [node.data.entry for node in self.lines.values() if node.data and node.data.entry]

    @property
    def chosen(self) -> ListLine | None:
        return None if self.cursor_node is None else self.cursor_node.data

    def show(self, lines: Iterable[ListLine], offers: Iterable[ListLine], *, is_filtered: bool = False) -> None:
        """Show these lines, and below them the offers; what is found by a filter is not folded."""
        chosen = self.chosen
        if not self._is_filtered:
            self._open = {key: node.is_expanded for key, node in self.lines.items()}
        self._is_filtered = is_filtered
        self.clear()
        self.lines, parents = {}, [self.root]
        for line in lines:
            del parents[line.level + 1 :]
            if line.entry is not None:
                self.lines[line.key] = parents[-1].add_leaf(Text(line.title), line)
            else:
                expand = is_filtered or self._open.get(line.key, line.level == 0)
                parents.append(parents[-1].add(Text(line.title), line, expand=expand))
                self.lines[line.key] = parents[-1]
        self.lines |= {offer.key: self.root.add_leaf(Text(offer.title), offer) for offer in offers}
        key = "" if chosen is None else chosen.key
        if key not in self.lines and chosen is not None and chosen.entry is not None:
            key = self.find(chosen.entry.model) or ""  # in another section
        self.go_to(key)

    def go_to(self, key: str) -> None:
        """Move the cursor to a line, unfolding what holds it; if it is gone, to the first model or first line."""
        wanted = self.lines.get(key)
        parent = None if wanted is None else wanted.parent
        while parent is not None and parent is not self.root:
            parent.expand()
            parent = parent.parent
        n_lines = self.last_line + 1  # draws the lines, which numbers them
        models = [node for node in self.lines.values() if node.data and node.data.entry]
        nodes = [node for node in (wanted, *models[:1], *self.lines.values()) if node is not None]
        self.cursor_line = -1
        self.move_cursor(next((node for node in nodes if 0 <= node.line < n_lines), None))

    def find(self, wanted: Path | str) -> str | None:
        """Return the key of the first model with this place, file or name; None if there is none."""
        found = (each.key for each in self.entries if wanted in (each.place, *each.files, each.model))
        return next(found, None)

    def render_label(self, node: TreeNode[ListLine], base_style: Style, style: Style) -> Text:
        """Return the title, cut in its middle to leave room, and the note at the end of the line."""
        line = node.data or ListLine(0, "", "")
        icon = ""
        if node.allow_expand:
            icon = "▾ " if node.is_expanded else "▸ "
        room = self.scrollable_content_region.width - self.guide_depth * line.level - len(icon)
        note = line.note
        if len(line.title) + len(note) >= room:
            note = note.rpartition(" ")[2] if line.entry and line.entry.quant else ""  # the speed alone
        title = shorten_middle(line.title, max(_LEAST_TITLE, room - len(note) - 1))
        text = Text(icon + title, base_style + Style(bold=node.allow_expand and not line.level))
        text.append(f"{note:>{max(0, room - len(title))}}", Style(dim=True))
        text.stylize(style)
        return text


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


def _offers(text: str, hub_state: str) -> Iterator[ListLine]:
    """Offer to add a path, or else to search the Hub; a word that is also a local path, both."""
    is_place = typed_path(text) is not None
    if is_place or (text and is_local(text)):
        yield ListLine(0, _ADD, f"+ add {sanitize(text)}")
    if text and not is_place and hub_state != "searching":
        yield ListLine(0, _SEARCH, f"⌕ search the Hub for {sanitize(text)}")
    if hub_state:
        yield ListLine(0, "state", sanitize(hub_state))


class ModelsPane(Vertical):
    """The list and its filter, which also adds places and searches the Hub."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "remove_place", "Remove", tooltip="Forget an added place; files stay")
    ]

    @dataclass
    class ModelChosen(Message):
        """A model was highlighted or, if `entered`, chosen by enter or click; None for a line without a model."""

        entry: ModelEntry | None
        entered: bool

    @dataclass
    class PlacesChanged(Message):
        """A place was added or removed, as the notice says."""

        notice: str

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, classes="panel")
        self.border_title, self.border_subtitle = "models", key_links("⏎ open")
        self._best: Sequence[ModelEntry] = ()
        self._listed: Sequence[ModelEntry] = ()
        self._found: Sequence[ModelEntry] = ()
        self._hub_state = ""
        self._is_complete = False
        self._wanted: Path | str | None = None
        """The model to open once it is listed."""

    def compose(self) -> ComposeResult:
        yield FilterInput("/ filter, path, Hub", id="model-filter")
        yield ModelTree(id="models")

    @property
    def models(self) -> ModelTree:
        return self.query_one(ModelTree)

    @property
    def input(self) -> Input:
        return self.query_one(Input)

    def list_models(self, entries: Sequence[ModelEntry], *, is_complete: bool) -> None:
        """Show the models found without a search; unless `is_complete`, more will follow."""
        is_first = is_complete and not self._is_complete and self._chosen in (None, *self.models.entries[:1])
        self._listed, self._is_complete = entries, is_complete
        self._show()
        if is_first:  # and not where the user moved the cursor
            self.models.go_to("")
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
            self.models.go_to(key)
            self._choose(entered=True)

    def show_best(self, entries: Sequence[ModelEntry]) -> None:
        """Show the models to run on this machine; the first is chosen if nothing else was."""
        is_first = self._chosen is None and self.models.cursor_line <= 0 and not self._best
        self._best = entries
        self._show()
        if entries and is_first:
            self.models.go_to(entries[0].key)

    def open(self, wanted: Path | str) -> None:
        """Choose the model with this place, file or name once the models have been listed again."""
        self.input.clear()
        self._wanted = wanted

    def show_failure(self) -> bool:
        """Show that the search failed; return False if its text is gone."""
        if self._text:
            self._hub_state = "the search failed"
            self._show()
        return bool(self._text)

    def action_remove_place(self) -> None:
        """Remove the chosen place from the list."""
        place = None if self._chosen is None else self._chosen.place

        def remove() -> Iterator[str]:
            if place is not None:
                forget_place(place)
                yield f"removed {place} from the list; its files stay"

        self._tasks.perform("place", remove, lambda notice: self.post_message(self.PlacesChanged(notice)))

    @on(Tree.NodeHighlighted)
    def _look_at(self) -> None:
        self._choose(entered=False)

    @on(Tree.NodeSelected)
    def _enter(self) -> None:
        line = self.models.chosen
        if line is not None and line.key == _SEARCH:
            self._search()
        elif line is not None and line.key == _ADD:
            self._add()
        elif self._chosen is not None:
            self._choose(entered=True)

    @on(Input.Changed)
    def _filter(self) -> None:
        self._tasks.forget("place", "search")  # whose text was another
        self._found, self._hub_state = (), ""
        self._show()

    @on(Input.Submitted)
    def _leave(self) -> None:
        """Add the path; else focus the filtered models or, if there are none, search the Hub."""
        if typed_path(self._text) is not None:
            self._add()
            return
        self.screen.set_focus(self.models)
        if (repo := named_repo(self._text)) is not None and (key := self.models.find(repo.model)) is not None:
            self.models.go_to(key)
            self._choose(entered=True)
        elif not self.models.entries and self._text:
            (self._add if is_local(self._text) else self._search)()

    @property
    def _tasks(self) -> TaskScreen:
        """The screen, which performs slow tasks and shows why one failed."""
        return cast("TaskScreen", self.screen)

    @property
    def _text(self) -> str:
        return self.input.value.strip()

    @property
    def _chosen(self) -> ModelEntry | None:
        """The model at the cursor."""
        return None if self.models.chosen is None else self.models.chosen.entry

    def _choose(self, *, entered: bool) -> None:
        self.post_message(self.ModelChosen(self._chosen, entered))

    def _add(self) -> None:
        """Add the folder or file of the text if it has models, remember it, and open it."""
        text = self._text

        def add() -> Iterator[tuple[Path, str, str]]:
            found = add_place(typed_path(text) or Path(text))
            name = path_argument(found[0].place or found[0].paths[0])
            yield found[0].paths[0], name, counted(len(found), "quant")

        def take(added: tuple[Path, str, str]) -> None:
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

            if "://" in text or engine_of_scheme(text.partition(":")[0].lower()):
                parse_model(text).require_gguf()  # raises UsageError for what the command line measures
            yield search_repos(hub, text, _MAX_FOUND)

        def take(found: Sequence[RepoSummary]) -> None:
            if text == self._text:  # else the filter has changed since
                self._found, self._hub_state = found_models(found), "" if found else "no GGUF repo"
                self._show()

        self._hub_state = "searching"
        self._show()
        self._tasks.perform("search", search, take)

    def _show(self) -> None:
        text = self._text
        listed = _each_once([*self._best, *self._listed, *self._found])
        repo = named_repo(text)
        words = text if repo is None else repo.model
        shown = [entry for entry in listed if entry.section is Section.HUB or entry.matches(words)]
        if repo is not None and all(entry.model != repo.model for entry in shown):
            shown.append(repo)
        self.models.show(lines_of(shown), _offers(text, self._hub_state), is_filtered=bool(text))
