"""What the Library does with folders and files that a person adds by hand, or opens it with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from textual import events, on
from textual.widgets import Input

from ggbench.plain import plain
from ggbench.tui.host import host_of
from ggbench.tui.messages import ModelsChanged
from ggbench.tui.screens.start_screen import StartScreen
from ggbench.tui.widgets.models_pane import ModelList, ModelsPane
from ggbench.units import format_count

if TYPE_CHECKING:
    from ggbench.catalog.disk import LocalModel


class PlacesScreen(StartScreen):
    """Adds and removes places in a thread, as finding their models may take a while."""

    def on_mount(self) -> None:
        """Open the model that the app was started with."""
        if (opens := host_of(self).opens) is not None:
            self.query_one(ModelsPane).open(opens)

    @on(events.Paste)
    def _paste(self, event: events.Paste) -> None:
        """Put what is pasted or dropped anywhere on the screen into the filter of the models."""
        lines = event.text.strip().splitlines()
        if lines:
            pane = self.query_one(ModelsPane)
            pane.input.value = lines[0]
            pane.input.focus()

    @on(ModelsPane.PlaceEntered)
    def _add_place(self, message: ModelsPane.PlaceEntered) -> None:
        def add() -> Iterator[tuple[LocalModel, ...]]:
            from ggbench.catalog.added_places import add_place

            yield add_place(message.path)

        self.perform("place", add, self._take_place)

    def _take_place(self, found: tuple[LocalModel, ...]) -> None:
        from ggbench.catalog.disk import path_argument

        first = found[0]
        if first.place is not None:
            count = f"{format_count(len(found))} quant{'' if len(found) == 1 else 's'}"
            self.notify(
                f"{plain(path_argument(first.place))}: {count}; x on the list removes it again",
                title="Added",
                markup=False,
            )
            self.query_one(ModelsPane).open(first.paths[0])
            self.post_message(ModelsChanged())

    @on(ModelList.PlaceRemovalRequested)
    def _remove_place(self, message: ModelList.PlaceRemovalRequested) -> None:
        def remove() -> Iterator[Path]:
            from ggbench.catalog.added_places import forget_place

            forget_place(message.path)
            yield message.path

        def take(path: Path) -> None:
            self.notify(f"{plain(str(path))}; its files stay", title="Removed from the list", markup=False)
            self.post_message(ModelsChanged())

        self.perform("place", remove, take)

    @on(Input.Changed, "#model-filter")
    def _forget_problem(self) -> None:
        if self.problems.pop("place", None) is not None:
            self.show_status()

    def show_status(self) -> None:
        """Show the state of the screen and the first of its problems."""
        raise NotImplementedError
