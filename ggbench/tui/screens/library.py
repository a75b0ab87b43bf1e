"""The Library: the needs on top, models on the left, and the quants of one on the right in the order of the pick."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Input, Static

from ggbench.decisions.pick.needs import needs_in_brief
from ggbench.errors import GgbenchError
from ggbench.models.added_places import remembered_servers, typed_server
from ggbench.tui.host import ModelsChanged, host_of
from ggbench.tui.library import quants_on_disk
from ggbench.tui.model_list import ModelEntry, list_models
from ggbench.tui.quant_rows import QuantRow
from ggbench.tui.screens.starting import StartScreen
from ggbench.tui.widgets.bars import KeysFooter, MemoryBar, NeedsBar, StatusMessage
from ggbench.tui.widgets.models_pane import ModelsPane
from ggbench.tui.widgets.quants_table import QuantsTable

if TYPE_CHECKING:
    from ggbench.decisions.pick.record import Candidate
    from ggbench.models.catalog import Catalog
    from ggbench.models.disk import LocalModel


_TASKS = ("place", "plan", "start", "search", "machine", "models")
"""If several failed, the screen shows the error of the first."""
_FIRST_STEPS = """enter  open a family on the left, then a model: its
       quants are planned, nothing is downloaded
/      filter, or type the path of a folder of yours,
       or words to search for on the Hub
e, g   say what the model is for, and on which GPU
?      all keys, and what the marks mean"""


class LibraryScreen(StartScreen):
    """Choose a model, mark its quants, measure or download them."""

    CSS_PATH = "library.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (90, "-wide")]  # noqa: RUF012 - Textual's
    HELP = """Quants are planned before any download, each run in the best way for your needs, in the order of the pick.

★  the pick; ● is marked, dim misses a need, or is still of former needs
~  estimated, ! of a disturbed run, — unknown: b measures it
↓  its download; a model that is not here can also be measured as a twin: a file of its shape, with random weights

In the bar of the memory, ░ stays free and · is the reserve. A path or the URL of a server in the filter is added to
the list; with an API key, start as: ggbench tui --api-key-env VARIABLE."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("P", "pick", "Pick", tooltip="What to run, the command for it, and the alternatives"),
        Binding(
            "w",
            "pick(True)",
            "Why",
            show=False,
            tooltip="The same with what is behind it: sources, rules, all details",
        ),
        Binding("e", "edit_needs", "Need", tooltip="What the model is for: context, speed, quality"),
        Binding("space", "mark", "Mark", key_display="␣", tooltip="Mark or unmark the quant"),
        Binding(
            "b", "measure", "Measure", tooltip="Measure the marked quants, or the chosen one: speed, quality, …"
        ),
        Binding(
            "a",
            "apply_tuned",
            "Apply tuned",
            show=False,
            tooltip="Set the options to those found by a tune (b)",
        ),
        Binding(
            "y", "copy", "Copy", show=False, tooltip="Copy the llama-server command of the quant as planned"
        ),
        Binding("p", "pull", "Pull", tooltip="Download the marked quants, or the chosen one"),
        Binding(
            "slash",
            "filter",
            "Models",
            key_display="/",
            tooltip="Filter the models, add a path, search the Hub",
        ),
        Binding("g", "choose_card", "GPU", tooltip="Plan for another GPU, or for a size of memory"),
        Binding(
            "o",
            "choose_options",
            "Options",
            tooltip="Memory limit, KV types, n_ctx and more, of plans and runs",
        ),
        Binding("tab,shift+tab", "other_part", show=False),
        Binding("r", "reload", "Reload", show=False, tooltip="Read disk, free memory and headers again"),
        Binding("escape", "leave", "Back", show=False, tooltip="Clear the filter, or go back to the models"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._notice = ""
        """Outcome of the last key."""

    def compose(self) -> ComposeResult:
        yield NeedsBar(id="needs")
        with Horizontal(id="middle"):
            yield ModelsPane(id="left")
            with Vertical(id="right"):
                yield Static(id="state", markup=False)
                yield QuantsTable(id="quants")
                yield Static(_FIRST_STEPS, id="first-steps", markup=False)
        yield StatusMessage(id="message")
        yield Static(id="reason", markup=False)
        yield MemoryBar(id="memory")
        yield KeysFooter()

    def on_mount(self) -> None:
        """Read models and machine, and open the model given at the start."""
        self.set_focus(self._left.models)
        self.show_status()
        self.read_machine()
        opens = host_of(self).opens
        if isinstance(opens, str) and typed_server(opens) is not None:
            self._left.enter(opens)
        elif opens is not None:
            self._left.open(opens)
        self._read_models()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        library = self.library
        if isinstance(self.focused, Input):
            return action in ("leave", "other_part")
        if action == "pick":
            return library.entry is not None
        if action == "pull":
            return library.can_pull
        if action in ("measure", "apply_tuned"):
            return bool(library.rows or library.selection(None))
        if action == "mark":
            return bool(library.rows)
        return True

    @on(ModelsChanged)
    def _read_models(self) -> None:
        """List the models; the first time, those of the catalog before the disk was scanned."""
        services, is_first = host_of(self).services, self.catalog is None

        def read() -> Iterator[tuple[Catalog, Sequence[ModelEntry], Sequence[LocalModel] | None]]:
            catalog, servers = services.load_catalog(), remembered_servers()
            if is_first:
                yield catalog, list_models(catalog, (), servers), None
            local = services.local_models()
            yield catalog, list_models(catalog, local, servers), local

        def take(read: tuple[Catalog, Sequence[ModelEntry], Sequence[LocalModel] | None]) -> None:
            self.catalog, listed, local = read
            if local is not None:
                has_arrived = self.library.update(quants_on_disk(local, self.catalog))
                if has_arrived and self.machine is not None:
                    self.show_notice("")  # of the download
                    self.machine.planner.forget()  # the files found before the download
                    self.plan_when_shown()
            self.show_rows()
            self._left.list_models(listed, is_complete=local is not None)

        self.perform("models", read, take)

    @on(ModelsPane.PlacesChanged)
    def _take_places(self, message: ModelsPane.PlacesChanged) -> None:
        self.show_notice(message.notice)
        self._read_models()

    @on(events.Paste)
    def _paste(self, event: events.Paste) -> None:
        """Put text pasted or dropped anywhere on the screen into the filter of the models."""
        if lines := event.text.strip().splitlines():
            self._left.input.value = lines[0]
            self.set_focus(self._left.input)

    def on_key(self) -> None:
        """Clear what the last key did."""
        if self._notice:
            self.show_notice("")

    def show_notice(self, text: str) -> None:
        """Show the outcome of a key in the message line; no text clears it."""
        self._notice = text
        self.show_status()

    def show_failure(self, task: str, error: GgbenchError) -> None:
        if task in ("plan", "machine"):
            self.is_planning = False
            if self.decision is not None:
                self.decision.show_failure(error)
        if task == "search" and not self._left.show_failure():
            del self.problems[task]
        self.show_rows()

    def show_problems(self) -> None:
        self.show_status()

    @on(ModelsPane.ModelChosen)
    def _take_model(self, message: ModelsPane.ModelChosen) -> None:
        """Plan a model when it is highlighted or, if it needs the network, when it is entered; keys are for it."""
        if self.library.choose(message.entry, is_planning=self.is_planning):
            self._table.start_over()
            self.replan(begins=message.entered or not message.entry.needs_network)
        if message.entered:
            host = host_of(self)
            self._table.wanted, host.opens_quant = host.opens_quant, None
            self.set_focus(self._table)

    @on(QuantsTable.OptionHighlighted, "#quants")
    def _show_memory(self) -> None:
        from ggbench.decisions.pick.sentences import candidate_name

        chosen = self.chosen
        shown = None if chosen is None else (candidate_name(chosen.candidate), chosen.plan)
        self.query_one(MemoryBar).shown = shown

    @on(QuantsTable.OptionSelected, "#quants")
    def _open_plan(self) -> None:
        """Show the plan of the quant, or the pick if that is it."""
        chosen, picked = self.chosen, self.library.picked
        if chosen is not None:
            is_pick = picked is not None and picked.name == chosen.name
            self.action_pick(own=None if is_pick else chosen.candidate)

    def action_pick(self, why: bool = False, own: Candidate | None = None) -> None:
        if not self.library.rows and not self.is_planning:  # a repo that is not entered yet
            self.replan()
        super().action_pick(why, own)

    def action_mark(self) -> None:
        if (chosen := self.chosen) is not None:
            self.library.toggle_mark(chosen.name)
            self._table.show_library(self.library)
            self.show_status()

    def action_copy(self) -> None:
        """Copy the commands of the quant at the cursor."""
        from ggbench.decisions.pick.show import commands_of

        chosen, budget, commands = self.chosen, self.budget, None
        if chosen is not None and budget is not None and not self.is_planning:
            commands = commands_of(chosen.candidate, budget)
        if commands is None:
            why = (
                "the quants are still being planned"
                if self.is_planning
                else "no quant is chosen, or it has no file"
            )
            self.show_notice(f"nothing to copy: {why}")
            return
        self.app.copy_to_clipboard("\n".join(filter(None, (commands.pull, commands.llama_server))))
        self.show_notice(f"copied {'its download, and ' if commands.pull else ''}{commands.llama_server}")

    def action_filter(self) -> None:
        self.set_focus(
            self._left.input
        )  # immediate, unlike `focus()`: letters typed right after belong to the filter

    def action_leave(self) -> None:
        """Go from the quants to the models, or clear the filter of the models."""
        if self.focused is not self._table:
            self._left.input.clear()
        self.set_focus(self._left.models)

    def action_other_part(self) -> None:
        """Switch between the models and the quants, skipping the filter."""
        self.set_focus(self._table if self.focused is self._left.models else self._left.models)

    def action_reload(self) -> None:
        """Read headers, disk, memory and results again."""
        if self.machine is not None:
            self.machine.planner.forget()
        self._read_models()
        self.read_machine()

    @property
    def chosen(self) -> QuantRow | None:
        return self._table.chosen

    @property
    def _left(self) -> ModelsPane:
        return self.query_one(ModelsPane)

    @property
    def _table(self) -> QuantsTable:
        return self.query_one(QuantsTable)

    def show_rows(self) -> None:
        self._table.show_library(self.library)
        self._show_memory()
        self.show_status()
        self.refresh_bindings()

    def show_status(self) -> None:
        """Update the needs, the model's line, the reason of the pick and the message."""
        library = self.library
        self.query_one(NeedsBar).show_needs(needs_in_brief(library.all_needs))
        status = library.status(is_machine_known=self.machine is not None, is_planning=self.is_planning)
        self.query_one("#state", Static).update(Text(status, no_wrap=True, overflow="ellipsis"))
        self.query_one("#reason", Static).update(Text("" if self.is_planning else library.reason()))
        self.query_one("#right").set_class(library.entry is None, "-first")
        problem = next((self.problems[task] for task in _TASKS if task in self.problems), None)
        if problem is not None:
            self.query_one(StatusMessage).show_error(problem)
        else:
            self.query_one(StatusMessage).show(*([self._notice] if self._notice else []))
