"""The Pick screen: which quant of a model to run and why, the other candidates, and the commands that run it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

import msgspec
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import DataTable, Static

from ggbench.decisions.pick.needs import Needs, limit_texts, workload_text
from ggbench.decisions.pick.record import Candidate, Checked, Pick
from ggbench.decisions.pick.report import lettered, pick_figure
from ggbench.decisions.pick.run_commands import commands_lines, modelfile_lines
from ggbench.decisions.pick.sentences import headline, reason
from ggbench.decisions.pick.show import commands_of
from ggbench.decisions.pick.wording import candidate_name, loss_text, tok_s_text, turn_text
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import GgbenchError
from ggbench.show import letter
from ggbench.show.changes import change_text
from ggbench.show.plan import fit_text, longest_text
from ggbench.show.plot import plot_text
from ggbench.sizing.plan_record import Budget
from ggbench.text import sanitize
from ggbench.tui.host import TaskScreen
from ggbench.tui.screens.dialogs import Dialog
from ggbench.tui.screens.forms import PICK, SettingsDialog
from ggbench.tui.widgets.bars import KeysFooter, StatusMessage, TooSmall
from ggbench.tui.widgets.quants_table import ColumnTable
from ggbench.units import format_bytes

if TYPE_CHECKING:
    from ggbench.decisions.pick.run_commands import RunCommands


_COLUMNS = ("", "", "quant", "options", "KV", "loss", "tok/s", "turn s", "fits", "max n_ctx", "file")
_MAX_CHANGES = 3


class PickTask(msgspec.Struct, frozen=True):
    """Model to pick a quant of, memory to pick for, and the callbacks."""

    title: str
    """Name of the model; printable."""
    budget: Budget
    setup: LlamaConfig
    choose: Callable[[Needs], Pick]
    """Slow, so call it in a thread. Raises GgbenchError."""
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
            lines = [*commands_lines(self._commands), *(["", *self._commands.notes] if self._commands.notes else [])]
            yield Static(Text("\n".join(map(sanitize, lines))))


class PickScreen(TaskScreen):
    """Picks as soon as it is shown; esc returns to the Library."""

    CSS_PATH = "pick.tcss"
    AUTO_FOCUS = "#candidates"
    HELP = (
        "What to run, and why. The table has the pick, the alternatives, and all others that no candidate"
        " dominates; the letters are those of the plot. Loss is the mean KL divergence in nats: ~ published as"
        " typical of the type, + ? plus the unknown loss of the KV cache. ≤ is the bandwidth limit."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "show_all", "All commands", show=False, tooltip="Show every way to run the row at the cursor"),
        Binding("y", "copy", "Copy command", tooltip="Copy the commands that download and run the row at the cursor"),
        Binding("o", "copy_modelfile", "Ollama", tooltip="Copy its Modelfile for Ollama and the commands that use it"),
        Binding("p", "pull", "Pull", tooltip="Download the row at the cursor"),
        Binding("b", "measure", "Measure", tooltip="Time a decode of the row at the cursor, as planned"),
        Binding("e", "edit", "Needs", tooltip="Change the needs, and pick again"),
        Binding("escape", "app.pop_screen", "Back", tooltip="Back to the Library"),
        Binding("j", "app.simulate_key('down')", show=False),
        Binding("k", "app.simulate_key('up')", show=False),
    ]

    def __init__(self, task: PickTask, needs: Needs) -> None:
        super().__init__()
        self._asked, self._needs = task, needs
        self._pick: Pick | None = None
        self._rows: list[tuple[str, Checked]] = []

    def compose(self) -> ComposeResult:
        yield Static(f"Pick · {self._asked.title} on {sanitize(self._asked.budget.device)}", id="title", markup=False)
        yield Static(id="needs", markup=False)
        yield Static(id="headline", markup=False)
        yield Static(id="why", markup=False)
        with Horizontal(id="middle"):
            yield ColumnTable(id="candidates", cursor_type="row", zebra_stripes=False)
            yield Static(id="plot", markup=False)
        yield Static(id="commands", markup=False)
        yield StatusMessage()
        yield TooSmall()
        yield KeysFooter()

    def on_mount(self) -> None:
        self._table.add_columns(*_COLUMNS)
        self._table.fixed_columns = 3
        self._choose()

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw_plot)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        candidate = self._candidate
        if action in ("copy", "copy_modelfile", "measure"):
            return candidate is not None and candidate.to_run is not None
        if action == "pull":
            file = None if candidate is None else candidate.to_run
            return file is not None and bool(file.repo) and not file.is_here
        return True

    def action_edit(self) -> None:
        def take(needs: Needs | None) -> None:
            if needs is not None:
                self._needs = needs
                self._choose()

        self.app.push_screen(SettingsDialog(PICK, self._needs, self._asked.title), take)

    def action_copy(self) -> None:
        if (commands := self._commands) is not None:
            self.query_one(StatusMessage).copy_commands(commands.pull, commands.llama_server)

    def action_copy_modelfile(self) -> None:
        commands, status = self._commands, self.query_one(StatusMessage)
        if commands is not None and commands.modelfile:
            status.copy_commands(*modelfile_lines(commands))
        elif commands is not None:
            status.show(*(note for note in commands.notes if note.startswith("Ollama")))

    @on(DataTable.RowSelected)
    def action_show_all(self) -> None:
        candidate, commands = self._candidate, self._commands
        if candidate is not None and commands is not None:
            self.app.push_screen(CommandsDialog(candidate_name(candidate), commands))

    def action_pull(self) -> None:
        self._leave_with(self._asked.pull)

    def action_measure(self) -> None:
        self._leave_with(self._asked.measure)

    def show_failure(self, task: str, error: GgbenchError) -> None:
        self.query_one("#headline", Static).update("")
        self.query_one(StatusMessage).show_error(error)

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
    def _commands(self) -> RunCommands | None:
        candidate = self._candidate
        return None if candidate is None else commands_of(candidate, self._asked.budget)

    def _leave_with(self, start: Callable[[Candidate], None]) -> None:
        candidate = self._candidate
        if candidate is not None:
            self.app.pop_screen()
            start(candidate)

    def _choose(self) -> None:
        needs = self._needs
        prefers = [f"prefers {needs.prefer}"] if needs.given_prefer else []
        self.query_one("#needs", Static).update("; ".join([workload_text(needs), *limit_texts(needs), *prefers]))
        self.query_one("#headline", Static).update("picking…")

        self.perform("pick", lambda: [self._asked.choose(needs)], self._show)

    def _show(self, pick: Pick) -> None:
        self._pick = pick
        rest = [("", each) for label, each in pick.unlisted if pick.recommended is None or not label]
        self._rows = [*pick.listed, *rest]
        letters = {each.candidate.name: letter(index) for index, each in enumerate(lettered(pick))}
        self.query_one(StatusMessage).show()
        self.query_one("#headline", Static).update(headline(pick))
        why, enough = [*reason(pick)], [change for change in pick.changes if change.fits][:_MAX_CHANGES]
        if pick.nearest_miss is not None and enough:
            nearest = candidate_name(pick.nearest_miss.candidate)
            why.append(f"{nearest} would fit with {' or '.join(map(change_text, enough))}.")
        self.query_one("#why", Static).update(sanitize(" ".join(why)))
        table = self._table
        table.clear()
        for label, checked in self._rows:
            name = checked.candidate.name
            style = "dim" if checked.meets is False else "bold" if checked is pick.recommended else ""
            table.add_row(*(Text(text, style) for text in _cells(letters.get(name, ""), label, checked.candidate)))
        self._show_commands()
        self.call_after_refresh(self._draw_plot)  # the height of the widgets above may change

    def _draw_plot(self) -> None:
        plot = self.query_one("#plot", Static)
        if self._pick is not None and plot.size.width and plot.size.height:
            size = plot.content_size
            figure = pick_figure(self._pick)
            text = plot_text(figure, size.width, size.height, color=True, has_legend=False) if figure else ""
            plot.update(Text.from_ansi(text, no_wrap=True))


def _cells(mark: str, label: str, candidate: Candidate) -> tuple[str, ...]:
    row = candidate.row
    return (
        mark,
        label,
        sanitize(candidate.selector or row.quant),
        " ".join(candidate.options),
        "/".join(dict.fromkeys(candidate.cache)),
        loss_text(candidate),
        tok_s_text(candidate),
        turn_text(candidate),
        fit_text(row),
        longest_text(row),
        format_bytes(row.file_bytes),
    )
