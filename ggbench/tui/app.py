"""The TUI's app: its screens over a queue of runs and a queue of downloads, which continue whatever screen is shown.

A screen and its dependencies are imported when it is first shown, so the first frame appears quickly.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import os
import pkgutil
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events, on
from textual.app import App, InvalidThemeError, SystemCommand
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.reactive import reactive
from textual.screen import Screen
from textual.theme import Theme
from textual.widgets import Input

from ggbench import paths
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import ExitCode, UsageError
from ggbench.files import replace_file
from ggbench.text import shorten
from ggbench.tui.host import ModelsChanged, PullsChanged, QueueChanged, RunsOpened, RunStored, Services
from ggbench.tui.screens.dialogs import ConfirmScreen, Dialog, HelpScreen, KeyHandled, Palette
from ggbench.tui.widgets.bars import TopLine

if TYPE_CHECKING:
    from ggbench.tui.run_queue import RunQueue
    from ggbench.tui.work_queue import PullQueue


_SCREENS = {
    "library": "ggbench.tui.screens.library:LibraryScreen",
    "run": "ggbench.tui.screens.run:RunScreen",
    "results": "ggbench.tui.screens.results:ResultsScreen",
}


_COLLECT_AFTER = 1000
"""New objects after which the youngest are looked at for garbage."""
_MOST_COPIED = 200
"""Characters of what was copied that a toast shows."""
_WATCH_EVERY_S = 1.0
_HANDLED_WITHIN_S = 1.0
"""Time after which a key is handed over whatever became of the one before it."""
_SAME_KEYS = {"j": "down", "k": "up"}
"""Letters that move wherever none is typed."""


class GgbenchApp(App[None]):
    TITLE = "ggbench"
    CSS_PATH = "app.tcss"
    DEFAULT_MODE = "library"
    NOTIFICATION_TIMEOUT: ClassVar[float] = 8.0
    AUTO_FOCUS = ""
    """Each screen sets the focus itself, as Textual would choose the filter, the first widget."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "switch_mode('library')", "Library", tooltip="Choose a model, plan its quants"),
        Binding("2", "switch_mode('run')", "Run", tooltip="Watch the runs and downloads"),
        Binding("3", "switch_mode('results')", "Results", tooltip="Open, compare, save stored runs"),
        Binding("?", "show_help", "Help", tooltip="Keys, and what the numbers mean"),
        Binding("q", "leave", "Quit", tooltip="Quit; asks while something runs"),
        Binding(
            "ctrl+p", "command_palette", "All", False, priority=True, tooltip="Search all actions and themes"
        ),
    ]

    machine_text: reactive[str] = reactive("", layout=False)

    def __init__(
        self, services: Services, *, opens: Path | str | None = None, opens_quant: str | None = None
    ) -> None:
        """`opens` is the model to open first, at `opens_quant`."""
        super().__init__()
        self.opens, self.opens_quant = opens, opens_quant
        self.setup = LlamaConfig()
        self.services = services
        self._screens: dict[str, Screen[Any]] = {}
        self._n_announced = 0
        """Finished runs known to the screens."""
        self._n_downloaded = 0
        self._typed: deque[events.Key] = deque()
        """Keys that wait until the one before them is handled."""
        self._handed_over: events.Key | None = None
        for mode in _SCREENS:
            self.add_mode(mode, functools.partial(self._screen_of, mode))

    @functools.cached_property
    def run_queue(self) -> RunQueue:
        from ggbench.tui.run_queue import RunQueue

        services = self.services
        return RunQueue(services.open_store, services.run_context, lambda: self._post(QueueChanged()))

    @functools.cached_property
    def pull_queue(self) -> PullQueue:
        from ggbench.tui.work_queue import PullQueue

        return PullQueue(lambda: self._post(PullsChanged()))

    @property
    def is_busy(self) -> bool:
        return any(queue.is_busy for queue in self._queues())

    def close_queues(self) -> None:
        """Stop all runs and downloads and wait for their workers to exit; may be called twice."""
        for queue in self._queues():
            queue.close()

    def on_load(self) -> None:
        """Take the theme of the last start, and let no task begin before the code that creates it goes on.

        Since Python 3.12 Textual (8.2.8) starts tasks eagerly: a mode's first screen is then composed before it is on
        the stack, where an Input looks for it.
        """
        asyncio.get_running_loop().set_task_factory(None)
        with contextlib.suppress(OSError, ValueError, UsageError, InvalidThemeError):
            self.theme = paths.theme_file().read_text(encoding="utf-8")

    def on_mount(self) -> None:
        """Quit like `q` on the signals of `kill` and of a closing terminal, unless they are ignored."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:
                with contextlib.suppress(RuntimeError, ValueError):  # not in the main thread
                    loop.add_signal_handler(number, self.exit, None, ExitCode.INTERRUPTED)

        if os.isatty(0):
            self.set_interval(_WATCH_EVERY_S, self._leave_a_lost_terminal)
        self.theme_changed_signal.subscribe(self, self._remember_theme)

    def _leave_a_lost_terminal(self) -> None:
        """Quit when the terminal is gone and no signal said so, as under nohup: reading it would keep a core busy."""
        if not os.isatty(0):
            self.exit(None, ExitCode.INTERRUPTED)

    def _remember_theme(self, theme: Theme) -> None:
        """Keep the theme for the next start, unless the config folder cannot be written."""
        with contextlib.suppress(OSError, UsageError):
            replace_file(paths.theme_file(), theme.name.encode())

    def on_app_focus(self) -> None:
        """Read the runs again when the terminal gets the focus, as a command in another may have added some."""
        if self.current_mode == "results":
            self.screen.post_message(RunStored())

    def on_unmount(self) -> None:
        self.close_queues()

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Offer each action of a key that does more than move once, and of Textual's own commands the themes."""
        yield SystemCommand("Theme", "Change the colors of all screens", self.search_themes)
        if self.current_mode != "results":
            about = "Save stored runs as a report or whole: s and S among the results"
            yield SystemCommand("Report, export", about, lambda: self.switch_mode("results"))
        for active in screen.active_bindings.values():
            binding = active.binding
            if binding.tooltip and binding.show:
                yield SystemCommand(
                    binding.description,
                    f"{binding.tooltip} (key: {self.get_key_display(binding)})",
                    functools.partial(self.run_action, binding.action, active.node),
                )

    @on(QueueChanged)
    def announce_ended_runs(self) -> None:
        n_over = sum(item.state.is_over for item in self.run_queue.items)
        if n_over > self._n_announced:
            self._n_announced = n_over
            self._announce(RunStored, ModelsChanged)
        self._refresh_bars()

    @on(RunsOpened)
    async def show_runs(self, message: RunsOpened) -> None:
        await self.switch_mode("results")
        self._screens["results"].post_message(RunsOpened(message.run_ids))

    @on(PullsChanged)
    def announce_pulls(self) -> None:
        n_done = sum(item.path is not None for item in self.pull_queue.items)
        if n_done > self._n_downloaded:
            self._n_downloaded = n_done
            self._announce(ModelsChanged)
        self._announce(PullsChanged)
        self._refresh_bars()

    def _announce(self, *kinds: Callable[[], Message]) -> None:
        for screen in self._screens.values():
            for kind in kinds:
                screen.post_message(kind())

    def copy_to_clipboard(self, text: str) -> None:
        """Copy also to the buffer of tmux, which by default ignores what a program copies; a toast shows what."""
        super().copy_to_clipboard(text)
        if "TMUX" in os.environ:
            command = ["tmux", "load-buffer", "-w", "-"]
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(command, input=text.encode(), capture_output=True, timeout=1.0, check=False)
        self.notify(f"copied {shorten(text, _MOST_COPIED)}", markup=False)

    def simulate_key(self, key: str) -> None:
        """Press a key in place of a click. The key that Textual makes stops below the clicked screen, its sender."""
        event = events.Key(key, None)
        event.set_sender(self)
        self.post_message(event)

    def pop_screen(self) -> AwaitComplete:
        """Let the next key go to the screen below."""
        popped = super().pop_screen()
        self.screen.post_message(KeyHandled(self._handed_over))  # that of the closed screen is lost
        return popped

    async def on_event(self, event: events.Event) -> None:
        """Hand over a key once the one before it was handled: of a burst, each belongs to what is shown by then."""
        if not isinstance(event, events.Key) or event.is_forwarded:
            await super().on_event(event)
            return
        self._typed.append(event)
        if self._handed_over is None or event.time > self._handed_over.time + _HANDLED_WITHIN_S:
            await self._hand_over()

    @on(KeyHandled)
    async def _hand_over_next(self, message: KeyHandled) -> None:
        if message.key is self._handed_over:
            await self._hand_over()

    async def _hand_over(self) -> None:
        is_opening = isinstance(self.screen, Dialog) and not self.screen.has_opened
        key = self._handed_over = None if is_opening or not self._typed else self._typed.popleft()
        if key is not None:
            target = self.focused or self.screen
            is_move = key.key in _SAME_KEYS and not isinstance(self.focused, Input)
            await super().on_event(events.Key(_SAME_KEYS[key.key], None) if is_move else key)
            target.post_message(KeyHandled(key))

    async def action_quit(self) -> None:
        self.action_leave()

    def action_leave(self) -> None:
        """Quit; ask first while a run or a download is in progress."""
        if not self.is_busy:
            self.exit()
        elif not isinstance(self.screen, ConfirmScreen):
            question = "Stop all runs and downloads and quit? Samples and partial downloads are kept."
            self.push_screen(ConfirmScreen(question, "Quit"), lambda yes: self.exit() if yes else None)

    def action_show_help(self) -> None:
        if not self.screen.is_modal:
            self.push_screen(HelpScreen(self.screen))

    def action_command_palette(self) -> None:
        if not isinstance(self.screen, Palette):
            self.push_screen(Palette(id="--command-palette"))

    def search_themes(self) -> None:
        from textual.theme import ThemeProvider

        self.push_screen(Palette(providers=[ThemeProvider], placeholder="Search for themes…"))

    def _queues(self) -> list[RunQueue | PullQueue]:
        made = [self.__dict__.get(name) for name in ("run_queue", "pull_queue")]
        return [queue for queue in made if queue is not None]

    def _screen_of(self, mode: str) -> Screen[Any]:
        """Create a screen on first use: importing all of them would delay the first frame."""
        screen: Screen[Any] = pkgutil.resolve_name(_SCREENS[mode])()
        self._screens[mode] = screen
        screen.call_after_refresh(self._limit_collections)
        return screen

    def _limit_collections(self) -> None:
        """Let the garbage collector run often, but leave out the modules and screens, which stay.

        With the threshold of the command line it would run seldom, and visit all of them: that holds a key up by
        0.1 to 0.3 s, and keeps the widgets of closed dialogs.
        """
        if not self.is_headless:  # a test makes many apps, of which none is to stay
            gc.freeze()
            gc.set_threshold(_COLLECT_AFTER)

    def _post(self, message: QueueChanged | PullsChanged) -> None:
        if self.is_running:
            self.post_message(message)

    def _refresh_bars(self) -> None:
        for screen in self._screens.values():
            for bar in screen.query(TopLine):
                bar.refresh()
