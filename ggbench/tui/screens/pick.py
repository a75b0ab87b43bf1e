"""The Pick screen: which quant of a model to run and why, as `pick` prints it, or the plan of one quant.

The Library makes the pick and renews it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import msgspec
from msgspec.structs import replace
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Static

from ggbench.decisions.pick.needs import needs_in_brief
from ggbench.decisions.pick.record import Candidate, Pick
from ggbench.decisions.pick.sentences import is_runnable
from ggbench.decisions.pick.show import commands_of, pick_answer
from ggbench.errors import GgbenchError
from ggbench.show.answer import Answer
from ggbench.show.names import short_device
from ggbench.show.plan import plan_answer
from ggbench.sizing.plan_record import Budget, EnginePlan
from ggbench.text import sanitize
from ggbench.tui.widgets.answer_pane import AnswerPane
from ggbench.tui.widgets.bars import KeysFooter, StatusMessage


class PickTask(msgspec.Struct, frozen=True):
    """Model of the pick, the memory it is made for, and the callbacks."""

    title: str
    """Name of the model; printable."""
    budget: Budget
    edit_needs: Callable[[], object]
    """Ask for other needs, which leads to another pick."""
    measure: Callable[[Candidate], None]
    pull: Callable[[Candidate], None]


class PickScreen(Screen[None]):
    """The decision; esc returns to the Library."""

    CSS_PATH = "pick.tcss"
    AUTO_FOCUS = "AnswerPane"
    HELP = "What to run, as `ggbench pick` prints it, or the plan of the quant that was chosen in the Library."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "copy", "Copy", tooltip="Copy the command"),
        Binding("p", "pull", "Pull", tooltip="Download the file"),
        Binding("b", "measure", "Measure", tooltip="Measure it as planned"),
        Binding("e", "edit", "Needs", tooltip="Change the needs, and pick again"),
        Binding("escape", "app.pop_screen", "Back", tooltip="Back to the Library"),
    ]

    def __init__(self, task: PickTask, pick: Pick, own: Candidate | None = None, *, why: bool = False) -> None:
        """With `own` the screen shows the plan of that candidate."""
        super().__init__()
        self._asked, self._pick, self._own, self._why = task, pick, own, why

    def compose(self) -> ComposeResult:
        yield Static(self._title, id="title", markup=False)
        yield AnswerPane(self._answer, why=self._why)
        yield StatusMessage()
        yield KeysFooter()

    @property
    def _title(self) -> str:
        device = sanitize(short_device(self._asked.budget.device))
        return f"{self._asked.title} for {needs_in_brief(self._pick.needs)} on {device}"

    @property
    def _answer(self) -> Answer:
        budget, candidate = self._asked.budget, self._candidate
        commands = None if candidate is None else commands_of(candidate, budget)
        if self._own is None:
            return pick_answer(self._pick, budget, commands)
        planned = plan_answer(EnginePlan(budget, (self._own.row,), {}))
        return planned if commands is None else replace(planned, command=commands.llama_server)

    @property
    def _candidate(self) -> Candidate | None:
        """What to run; None if nothing fits."""
        best = self._pick.best if is_runnable(self._pick) else None
        return self._own or (None if best is None else best.candidate)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        file = None if self._candidate is None else self._candidate.to_run
        if action == "pull":
            return file is not None and bool(file.repo) and not file.is_here
        return file is not None or action not in ("copy", "measure")

    def action_edit(self) -> None:
        self._asked.edit_needs()

    def action_copy(self) -> None:
        self._status.copy_commands(self._answer.command)

    def action_pull(self) -> None:
        self._leave_with(self._asked.pull)

    def action_measure(self) -> None:
        self._leave_with(self._asked.measure)

    def _leave_with(self, start: Callable[[Candidate], None]) -> None:
        if (candidate := self._candidate) is not None:
            self.app.pop_screen()
            start(candidate)

    def show_progress(self) -> None:
        """Say that another pick is being made."""
        if self.is_mounted:
            self.query_one("#title", Static).update("picking again: the quants are being planned")

    def show_failure(self, error: GgbenchError) -> None:
        if self.is_mounted:
            self._status.show_error(error)

    def show(self, pick: Pick) -> None:
        """Show another pick, and what has become of the candidate."""
        self._pick = pick
        if self._own is not None:
            same = (each.candidate for each in pick.checked if each.candidate.name == self._own.name)
            self._own = next(same, None)
        if self.is_mounted:
            self._status.show()
            self.query_one("#title", Static).update(self._title)
            self.query_one(AnswerPane).show(self._answer)
            self.refresh_bindings()

    @property
    def _status(self) -> StatusMessage:
        return self.query_one(StatusMessage)
