"""The line at the top of every screen: which one it is, the keys of the others, and what goes on behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from rich.text import Text
from textual.events import Click
from textual.widget import Widget
from textual.widgets import Static

if TYPE_CHECKING:
    from ggbench.tui.pull_queue import PullQueue
    from ggbench.tui.run_queue import RunQueue

_MODES = {"library": "1 Library", "run": "2 Run", "results": "3 Results", "pulls": "4 Pulls"}


class _Host(Protocol):
    run_queue: RunQueue
    pull_queue: PullQueue

    def switch_mode(self, mode: str) -> object: ...


class ModeBar(Static):
    """`1 Library  2 Run  3 Results  4 Pulls`; a click goes there."""

    def __init__(self, mode: str) -> None:
        """`mode` is the one that this bar stands over."""
        super().__init__(markup=False)
        self._mode = mode
        self._told = Text()

    def on_mount(self) -> None:
        """Draw it."""
        self.refresh_news()

    def on_click(self, event: Click) -> None:
        """Go to the screen whose name was clicked."""
        start = 0
        for mode, name in _MODES.items():
            start += len(name) + 2
            if event.x < start:
                cast("_Host", self.app).switch_mode(mode)
                return

    def refresh_news(self) -> None:
        """Draw it again, with what runs and what is downloaded."""
        line = Text(no_wrap=True, overflow="ellipsis")
        for mode, name in _MODES.items():
            line.append(f" {name} ", style="bold reverse" if mode == self._mode else "")
        made = vars(self.app)
        runs: RunQueue | None = made.get("run_queue")
        pulls: PullQueue | None = made.get("pull_queue")
        if runs is not None and runs.is_busy:
            waiting = sum(not item.state.is_over for item in runs.items)
            line.append(f"  {'‖ paused' if runs.is_paused else '▶ running'}, {waiting} to go")
        if pulls is not None and pulls.is_busy:
            line.append(f"  ↓ {pulls.summary()}")
        if line != self._told:
            self._told = line
            self.update(line, layout=False)


class TooSmall(Static):
    """Stands in for a screen that has no room, and gives the focus back to what had it when there is room again."""

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._had_focus: Widget | None = None

    def on_mount(self) -> None:
        """Say how much room it takes."""
        from ggbench.tui.app import LEAST_HEIGHT, LEAST_WIDTH

        self.watch(self.screen, "focused", self._note_focus)
        self.update(f"ggbench needs at least {LEAST_WIDTH} x {LEAST_HEIGHT} characters here; make the window larger")

    def on_hide(self) -> None:
        """The screen is back."""
        if self.screen.focused is None and self._had_focus is not None and self._had_focus.is_attached:
            self.call_after_refresh(self.screen.set_focus, self._had_focus)

    def _note_focus(self, focused: Widget | None) -> None:
        if focused is not None:
            self._had_focus = focused
