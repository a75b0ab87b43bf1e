"""The line at the top of every screen: the screens with their keys, and runs and downloads in progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text
from textual.events import Click
from textual.widget import Widget
from textual.widgets import Static

from ggbench.tui.host import MIN_HEIGHT, MIN_WIDTH

if TYPE_CHECKING:
    from ggbench.tui.pull_queue import PullQueue
    from ggbench.tui.run_queue import RunQueue

_MODES = {"library": "1 Library", "run": "2 Run", "results": "3 Results", "pulls": "4 Pulls"}


class ModeBar(Static):
    """`1 Library  2 Run  3 Results  4 Pulls`; a click switches to that screen."""

    def __init__(self, mode: str) -> None:
        """`mode` is the screen that this bar belongs to."""
        super().__init__(markup=False)
        self._mode = mode
        self._shown = Text()

    def on_mount(self) -> None:
        """Draw the bar."""
        self.refresh_status()

    def on_click(self, event: Click) -> None:
        """Switch to the screen whose name was clicked."""
        start = 0
        for mode, name in _MODES.items():
            start += len(name) + 2
            if event.x < start:
                self.app.switch_mode(mode)
                return

    def refresh_status(self) -> None:
        """Redraw the bar if the state of the queues changed."""
        line = Text(no_wrap=True, overflow="ellipsis")
        for mode, name in _MODES.items():
            line.append(f" {name} ", style="bold reverse" if mode == self._mode else "")
        made = vars(self.app)  # the app makes a queue when it is first used; reading the attribute would make it
        runs: RunQueue | None = made.get("run_queue")
        pulls: PullQueue | None = made.get("pull_queue")
        if runs is not None and runs.is_busy:
            waiting = sum(not item.state.is_over for item in runs.items)
            line.append(f"  {'‖ paused' if runs.is_paused else '▶ running'}, {waiting} to go")
        if pulls is not None and pulls.is_busy:
            line.append(f"  ↓ {pulls.summary()}")
        if line != self._shown:
            self._shown = line
            self.update(line, layout=False)


class TooSmall(Static):
    """Shown instead of a screen in a window that is too small; restores the focus once the window is large enough."""

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._last_focused: Widget | None = None

    def on_mount(self) -> None:
        """State the minimum size."""
        self.watch(self.screen, "focused", self._remember_focus)
        self.update(f"ggbench needs a window of at least {MIN_WIDTH} x {MIN_HEIGHT} characters; enlarge this one")

    def on_hide(self) -> None:
        """Restore the focus."""
        last = self._last_focused
        if self.screen.focused is None and last is not None and last.is_attached:
            self.call_after_refresh(self.screen.set_focus, last)

    def _remember_focus(self, focused: Widget | None) -> None:
        if focused is not None:
            self._last_focused = focused
