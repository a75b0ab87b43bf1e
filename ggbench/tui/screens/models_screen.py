"""Where the Library gets its models: the catalog, this disk, places added by hand, and searches of the Hub."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from textual import events, on
from textual.timer import Timer
from textual.widgets import Input

from ggbench.models.added_places import typed_server
from ggbench.tui.host import ModelsChanged, host_of
from ggbench.tui.library_models import found_models, list_models
from ggbench.tui.screens.start_screen import StartScreen
from ggbench.tui.widgets.models_pane import ModelList, ModelsPane
from ggbench.tui.widgets.quants_pane import QuantsPane
from ggbench.units import counted, format_count

if TYPE_CHECKING:
    from ggbench.hub.repo_records import RepoSummary
    from ggbench.models.catalog import Catalog
    from ggbench.models.disk import LocalModel


FIRST_START = (
    "No GGUF file found. Press / and type the path of a folder, or p to download;",
    "P picks what to run of a model; synth: models need no file. ? lists all keys.",
)
"""What a new user does next, in lines that 80 columns hold."""
_NOTICE_S = 10.0
_MAX_FOUND = 20
"""Repos that a search of the Hub lists."""


class _Listed(msgspec.Struct, frozen=True):
    """What there is to choose from."""

    catalog: Catalog
    local: Sequence[LocalModel]
    servers: Sequence[str]
    is_complete: bool


class ModelsScreen(StartScreen):
    """Reads, adds, removes and searches in threads, as finding models may take a while."""

    def __init__(self) -> None:
        super().__init__()
        self.catalog: Catalog | None = None
        self.has_no_models = False
        """Whether this disk was found to have no model, nor a twin."""
        self.notice = ""
        """The outcome of the last key; empty a few seconds later."""
        self._notice_timer: Timer | None = None

    def on_mount(self) -> None:
        """Read the models, and open the one that the app was started with."""
        opens, pane = host_of(self).opens, self.query_one(ModelsPane)
        if isinstance(opens, str) and typed_server(opens) is not None:
            pane.enter(opens)
        elif opens is not None:
            pane.open(opens)
        self.read_models()

    @on(ModelsChanged)
    def read_models(self) -> None:
        """List the models again."""
        services, is_first = host_of(self).services, self.catalog is None

        def read() -> Iterator[_Listed]:
            from ggbench.models.added_places import remembered_servers

            catalog, servers = services.load_catalog(), remembered_servers()
            if is_first:
                yield _Listed(catalog, (), servers, is_complete=False)
            yield _Listed(catalog, services.local_models(), servers, is_complete=True)

        self.perform("models", read, self._take_listed)

    def _take_listed(self, read: _Listed) -> None:
        """Take in the models of the catalog and of this disk; the first time, before the disk was scanned."""
        self.catalog = read.catalog
        self.has_no_models = read.is_complete and not read.local and not read.servers
        self.take_models(read.local, read.catalog)
        entries = list_models(read.catalog, read.local, read.servers)
        self.query_one(ModelsPane).list_models(entries, is_complete=read.is_complete)

    @abstractmethod
    def take_models(self, local: Sequence[LocalModel], catalog: Catalog) -> None:
        """Take in what is on this disk."""

    @on(ModelsPane.SearchRequested)
    def _search(self, message: ModelsPane.SearchRequested) -> None:
        hub, text = host_of(self).services.hub, message.text

        def search() -> Iterator[Sequence[RepoSummary]]:
            from ggbench.hub.listing import search_repos
            from ggbench.models.engine_models import engine_of_scheme
            from ggbench.models.reference import parse_model

            if engine_of_scheme(text.partition(":")[0].lower()):
                parse_model(text).require_gguf()  # raises UsageError: such are measured on the command line
            yield search_repos(hub, text, _MAX_FOUND)

        self.perform("search", search, lambda found: self.query_one(ModelsPane).show_found(text, found_models(found)))
        self.show_status()

    @on(events.Paste)
    def _paste(self, event: events.Paste) -> None:
        """Put what is pasted or dropped anywhere on the screen into the filter of the models."""
        lines = event.text.strip().splitlines()
        if lines:
            pane = self.query_one(ModelsPane)
            pane.input.value = lines[0]
            pane.input.focus()

    @on(QuantsPane.PlaceEntered)
    def _take_place_of_filter(self, message: QuantsPane.PlaceEntered) -> None:
        self.query_one(ModelsPane).enter(message.text)

    @on(ModelsPane.PlaceEntered)
    def _add_place(self, message: ModelsPane.PlaceEntered) -> None:
        def add() -> Iterator[tuple[LocalModel, ...]]:
            from ggbench.models.added_places import add_place

            yield add_place(message.path)

        self.perform("place", add, self._take_place)

    def _take_place(self, found: tuple[LocalModel, ...]) -> None:
        from ggbench.models.disk import path_argument

        first = found[0]
        if first.place is not None:
            count = f"{format_count(len(found))} quant{'' if len(found) == 1 else 's'}"
            self.show_notice(f"added {path_argument(first.place)}: {count}; d in the list on the left removes it")
            self.query_one(ModelsPane).open(first.paths[0])
            self.post_message(ModelsChanged())

    @on(ModelsPane.ServerEntered)
    def _add_server(self, message: ModelsPane.ServerEntered) -> None:
        """Ask the server for its models, and remember it where it has some."""
        services = host_of(self).services

        def add() -> Iterator[tuple[str, int]]:
            from ggbench.models.added_places import add_server

            n_models = len(services.resolve(message.base_url))
            add_server(message.base_url)
            yield message.base_url, n_models

        def take(added: tuple[str, int]) -> None:
            url, n_models = added
            self.show_notice(f"added {url}: {counted(n_models, 'model')}; d in the list on the left removes it")
            self.query_one(ModelsPane).open(url)
            self.post_message(ModelsChanged())

        self.perform("place", add, take)

    @on(ModelList.ServerRemovalRequested)
    def _remove_server(self, message: ModelList.ServerRemovalRequested) -> None:
        def remove() -> Iterator[str]:
            from ggbench.models.added_places import forget_server

            forget_server(message.base_url)
            yield message.base_url

        def take(url: str) -> None:
            self.show_notice(f"removed {url} from the list")
            self.post_message(ModelsChanged())

        self.perform("place", remove, take)

    @on(ModelList.PlaceRemovalRequested)
    def _remove_place(self, message: ModelList.PlaceRemovalRequested) -> None:
        def remove() -> Iterator[Path]:
            from ggbench.models.added_places import forget_place

            forget_place(message.path)
            yield message.path

        def take(path: Path) -> None:
            self.show_notice(f"removed {path} from the list; its files stay")
            self.post_message(ModelsChanged())

        self.perform("place", remove, take)

    @on(Input.Changed, "#model-filter")
    def _forget_problems(self) -> None:
        for task in ("place", "search"):
            self.problems.pop(task, None)
        self.show_status()

    def show_notice(self, text: str) -> None:
        """Show the outcome of a key in the message line, which covers nothing, for a few seconds."""
        if self._notice_timer is not None:
            self._notice_timer.stop()
        self.notice, self._notice_timer = text, self.set_timer(_NOTICE_S, self._drop_notice)
        self.show_status()

    def _drop_notice(self) -> None:
        self.notice = ""
        self.show_status()

    @abstractmethod
    def show_status(self) -> None:
        """Show the state of the screen and the first of its problems."""
