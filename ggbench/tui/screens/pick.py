"""The Pick screen: which quant of a model to run and why, the other candidates, and the commands that run it.

The Library makes the pick and renews it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar

import msgspec
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import DataTable, Static

from ggbench.decisions.pick.needs import needs_in_brief
from ggbench.decisions.pick.record import Candidate, Checked, Need, Pick
from ggbench.decisions.pick.run_commands import modelfile_lines
from ggbench.decisions.pick.sentences import candidate_name, headline, notes, reason
from ggbench.decisions.pick.show import commands_of
from ggbench.errors import GgbenchError
from ggbench.show.changes import change_text
from ggbench.show.names import short_device
from ggbench.show.words import say
from ggbench.sizing.budget import host_text
from ggbench.sizing.plan_record import Budget
from ggbench.text import sanitize
from ggbench.tui.library import beyond_training
from ggbench.tui.quant_rows import COLUMNS, QuantRow
from ggbench.tui.screens.dialogs import Dialog
from ggbench.tui.widgets.bars import KeysFooter, StatusMessage
from ggbench.tui.widgets.quants_table import ColumnTable, side_of, style_of

if TYPE_CHECKING:
    from ggbench.decisions.pick.run_commands import RunCommands


_COLUMNS = ("quant", "fits", "tok_s", "n_ctx", "kld", "file", "turn", "left_bytes", "interval", "needed_bytes")
"""Keys of the columns beside the label."""
_MISSES: dict[Need, str] = {"memory": "does not fit", "speed": "too slow", "loss": "loses more"}
_MAX_CHANGES = 3


class PickTask(msgspec.Struct, frozen=True):
    """Model of the pick, the memory it is made for, and the callbacks."""

    title: str
    """Name of the model; printable."""
    budget: Budget
    edit_needs: Callable[[], object]
    """Ask for other needs, which leads to another pick."""
    row_of: Callable[[Candidate, bool | None], QuantRow]
    """Return the Library's row of a candidate that meets the needs, misses one, or is unknown to."""
    measure: Callable[[Candidate], None]
    pull: Callable[[Candidate], None]


class CommandsDialog(Dialog[None]):
    """Every command of one candidate, to read or select."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter", "dismiss", "Close")]

    def __init__(self, title: str, commands: RunCommands) -> None:
        super().__init__()
        self._about, self._commands = title, commands

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog") as sheet:
            sheet.border_title, sheet.border_subtitle = self._about, "esc closes"
            found = self._commands
            lines = [
                found.pull,
                found.llama_server,
                found.llama_cli,
                "",
                *modelfile_lines(found),
                "",
                *found.notes,
            ]
            yield Static(Text("\n".join(map(sanitize, lines))))


class _CandidatesTable(ColumnTable):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", show=False),
        Binding("k", "cursor_up", show=False),
        Binding("enter", "screen.show_all", "More", tooltip="Show every way to run the row at the cursor"),
    ]


class PickScreen(Screen[None]):
    """The whole decision; esc returns to the Library."""

    CSS_PATH = "pick.tcss"
    AUTO_FOCUS = "#candidates"
    HELP = (
        "What to run, and why. The table has the pick, the alternatives, and all others that no candidate"
        " dominates: ≤ is a limit and no speed, ~ an estimate, ≥ at least, * all of the training context. The commands"
        " are of the row at the cursor; y copies them, and enter shows those of other programs."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "copy", "Copy", tooltip="Copy the llama-server command of the row at the cursor"),
        Binding(
            "o",
            "copy_modelfile",
            "Ollama",
            tooltip="Copy its Modelfile for Ollama and the commands that use it",
        ),
        Binding("p", "pull", "Pull", tooltip="Download the row at the cursor"),
        Binding("b", "measure", "Measure", tooltip="Time a decode of the row at the cursor, as planned"),
        Binding("e", "edit", "Needs", tooltip="Change the needs, and pick again"),
        Binding("escape", "app.pop_screen", "Back", tooltip="Back to the Library"),
    ]

    def __init__(self, task: PickTask, pick: Pick, cursor: tuple[str, ...] | None = None) -> None:
        """`cursor` is the name of the candidate to start at."""
        super().__init__()
        self._cursor = cursor
        self._asked, self._pick = task, pick
        self._rows: list[tuple[str, Checked]] = []

    def compose(self) -> ComposeResult:
        yield Static(id="title", markup=False)
        yield Static(id="headline", markup=False)
        with VerticalScroll(id="reasons"):
            yield Static(id="why", markup=False)
        yield _CandidatesTable(id="candidates", cursor_type="row", zebra_stripes=False)
        yield Static(id="commands", markup=False)
        yield StatusMessage()
        yield KeysFooter()

    def on_mount(self) -> None:
        self._table.fixed_columns = 3  # label, quant and how it is run
        self.show(self._pick)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if self._candidate is None:
            return True  # pressing the key then explains that no quant is planned yet
        file = self._candidate.to_run
        if action in ("copy", "copy_modelfile", "measure", "show_all"):
            return file is not None
        return action != "pull" or (file is not None and bool(file.repo) and not file.is_here)

    def action_edit(self) -> None:
        self._asked.edit_needs()

    def action_copy(self) -> None:
        if (commands := self._commands_or_why()) is not None:
            what = "the download and llama-server" if commands.pull else "llama-server"
            self._status.copy_commands(
                commands.pull, commands.llama_server, what=what, shown="select the text above"
            )

    def action_copy_modelfile(self) -> None:
        commands = self._commands_or_why()
        if commands is not None and commands.modelfile:
            what, shown = "the Modelfile and its commands", "press enter and select the text"
            self._status.copy_commands(*modelfile_lines(commands), what=what, shown=shown)
        elif commands is not None:
            self._status.show(f"Ollama has no setting for {', '.join(commands.not_in_ollama)}.")

    @on(DataTable.RowSelected)
    def action_show_all(self) -> None:
        if (commands := self._commands_or_why()) is not None and (candidate := self._candidate) is not None:
            self.app.push_screen(CommandsDialog(candidate_name(candidate), commands))

    def action_pull(self) -> None:
        self._leave_with(self._asked.pull)

    def action_measure(self) -> None:
        self._leave_with(self._asked.measure)

    def show_progress(self) -> None:
        """Say that another pick is being made; until then there are no commands to copy."""
        if not self._is_composed:
            return
        self._keep_cursor()
        self._rows = []
        self.query_one("#headline", Static).update("picking again: the quants are being planned")
        self._show_commands()

    def show_failure(self, error: GgbenchError) -> None:
        if not self._is_composed:
            return
        self.query_one("#headline", Static).update("")
        self._status.show_error(error)

    @on(DataTable.RowHighlighted)
    def _show_commands(self) -> None:
        commands = self._commands
        lines = [] if commands is None else filter(None, (commands.pull, commands.llama_server))
        self.query_one("#commands", Static).update(Text("\n".join(map(sanitize, lines))))
        self.refresh_bindings()

    @property
    def _table(self) -> ColumnTable:
        return self.query_one("#candidates", ColumnTable)

    @property
    def _candidate(self) -> Candidate | None:
        row = self._table.cursor_row if self.is_mounted and self._rows else -1
        return self._rows[row][1].candidate if 0 <= row < len(self._rows) else None

    @property
    def _status(self) -> StatusMessage:
        return self.query_one(StatusMessage)

    @property
    def _commands(self) -> RunCommands | None:
        candidate = self._candidate
        return None if candidate is None else commands_of(candidate, self._asked.budget)

    def _commands_or_why(self) -> RunCommands | None:
        if self._candidate is None:
            self._status.show("Not yet: the quants are still being planned.")
        return self._commands

    def _leave_with(self, start: Callable[[Candidate], None]) -> None:
        if self._commands_or_why() is not None and (candidate := self._candidate) is not None:
            self.app.pop_screen()
            start(candidate)

    def _keep_cursor(self) -> None:
        """Keep the candidate at the cursor for the next pick; a cursor at the pick goes to the next one."""
        candidate, best = self._candidate, self._pick.recommended
        if candidate is not None:
            is_pick = best is not None and candidate.name == best.candidate.name
            self._cursor = None if is_pick else candidate.name

    @property
    def _is_composed(self) -> bool:
        """Whether it has widgets; another pick may be made before."""
        return bool(self.query("#headline"))

    def show(self, pick: Pick) -> None:
        """Show a pick; before there are widgets, they will begin with it."""
        if self._is_composed:
            self._keep_cursor()
        self._pick = pick
        if not self._is_composed:
            return
        budget, beyond = self._asked.budget, beyond_training(pick)
        where = sanitize(short_device(budget.device))
        if host := host_text(budget):
            where += f" + {host.replace('GiB', 'GiB of main memory')}"
        self.query_one("#title", Static).update(
            f"{self._asked.title} for {needs_in_brief(pick.needs)} on {where}"
        )
        listed = [("beyond training", each) if beyond else (label, each) for label, each in pick.listed]
        self._rows = [*listed, *self._unlisted(pick)]
        self._status.show()
        self.query_one("#headline", Static).update(beyond or headline(pick))
        self.query_one("#why", Static).update("" if beyond else _why(pick, budget))
        self._fill_table()
        self._show_commands()

    def _unlisted(self, pick: Pick) -> Iterator[tuple[str, Checked]]:
        """Yield the other candidates with what they miss; with a pick, only those as good and that at the cursor."""
        for label, each in pick.unlisted:
            is_worse = pick.recommended is not None and (label or each.missed)
            if is_worse and each.candidate.name != self._cursor:
                continue
            if each.missed:
                yield _MISSES[each.missed[0].need], each
            else:
                yield label if pick.recommended is not None else "", each

    def _fill_table(self) -> None:
        table, columns = self._table, [COLUMNS[key] for key in _COLUMNS]
        table.clear(columns=True)
        table.add_columns("", *(Text(column.header, justify=side_of(column)) for column in columns))
        for label, checked in self._rows:
            row = self._asked.row_of(checked.candidate, checked.meets)
            cells = (
                Text(column.text(row), style_of(column, row), justify=side_of(column)) for column in columns
            )
            table.add_row(Text(label, "dim" if checked.meets is False else ""), *cells)
            if checked.candidate.name == self._cursor:
                table.move_cursor(row=table.row_count - 1, animate=False)


def _why(pick: Pick, budget: Budget) -> str:
    """Return what to mind, the reasons, and the first changes with which the nearest miss would fit."""
    enough = [change_text(change) for change in pick.changes if change.fits][:_MAX_CHANGES]
    remedy = [say("pick.fits_with", changes=" or ".join(enough))] if enough else []
    return " ".join([*notes(pick, is_here=budget.is_here), *reason(pick), *remedy])
