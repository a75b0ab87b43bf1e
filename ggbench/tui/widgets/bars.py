"""The bars around a screen: modes, machine, the outcome of the last key, the filter, and the planned memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from rich.style import Style
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Input, Static

from ggbench.errors import GgbenchError
from ggbench.text import sanitize
from ggbench.tui.host import host_of, runs_of
from ggbench.units import format_bandwidth, format_bytes

if TYPE_CHECKING:
    from ggbench.sizing.plan_record import Budget
    from ggbench.tui.run_queue import RunQueue
    from ggbench.tui.work_queue import PullQueue


def put(widget: Static, text: str) -> None:
    """Show a text; the same text again lays out nothing."""
    if str(widget.content) != text:
        widget.update(Text(text))


class StatusMessage(Static):
    """Why something failed; hidden while nothing did, and selectable by mouse."""

    def __init__(self) -> None:
        super().__init__(markup=False, classes="-empty")

    def show(self, error: GgbenchError | None) -> None:
        self.set_class(error is None, "-empty")
        put(self, "" if error is None else sanitize(f"✗ {error.line}"))


class FilterInput(Input):
    """Filters while typing; letters are not keys here."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,down", "submit", "To the list", tooltip="Go to the filtered list, or add the path"),
        Binding("escape", "screen.leave", "Clear", tooltip="Clear the filter and leave it"),
    ]

    def __init__(self, placeholder: str, *, id: str) -> None:
        super().__init__(placeholder=placeholder, id=id, compact=True)


_KEYS = {"␣": "space", "⏎": "enter", "esc": "escape", "/": "slash", "?": "question_mark", "+": "plus", "-": "minus",
         "←": "left", "→": "right", "↑": "up", "^p": "ctrl+p", "^r": "ctrl+r"}  # fmt: skip
"""Names of keys by what panels show."""


def key_links(keys: str) -> str:
    """Return `␣ mark · ← → change` as the subtitle of a panel; a click on a key, or on a word after it, presses it."""
    linked = []
    for text in keys.split(" · "):
        words = text.split()
        while len(words) > 1 and words[1] in _KEYS:
            linked.append(_link(words.pop(0)))
            linked.append(" ")
        linked += [_link(" ".join(words)), " · "]
    return "".join(linked[:-1])


def _link(text: str) -> str:
    key, _, about = text.partition(" ")
    return f"[@click=app.simulate_key('{_KEYS.get(key, key)}')][b $foreground]{key}[/] {about}[/]".replace(
        " [/]", "[/]"
    )


_MODES = {"library": "1 Library", "run": "2 Run", "results": "3 Results"}


class TopLine(Widget):
    """`ggbench  1 Library  2 Run  3 Results`, each to be clicked, and at the right what is at work and the machine."""

    ALLOW_SELECT = False

    def __init__(self, mode: str) -> None:
        """`mode` is the screen of this line."""
        super().__init__()
        self._mode = mode

    def on_mount(self) -> None:
        self.watch(self.app, "machine_text", self._show_machine)

    def _show_machine(self) -> None:
        self.refresh()

    def render(self) -> Text:
        line = Text(no_wrap=True, overflow="crop").append(" ggbench ", "bold")
        for mode, name in _MODES.items():
            meta = {"@click": f"app.switch_mode('{mode}')"}
            line.append(f" {name} ", Style(bold=mode == self._mode, reverse=mode == self._mode, meta=meta))
        room = max(0, self.size.width - line.cell_len - 2)
        right = " · ".join(filter(None, (*self._states(), host_of(self).machine_text)))
        while len(right) > room:  # whole parts, as a cut number reads as another
            right = right.rpartition(" · ")[0]
        return line.append(right.rjust(room + 1))

    def _states(self) -> Iterator[str]:
        runs: RunQueue | None = runs_of(self)
        pulls: PullQueue | None = vars(self.app).get("pull_queue")
        if runs is not None and runs.is_busy:
            yield f"▶ running{runs.waiting_text}"
        if pulls is not None and pulls.is_busy:
            yield f"↓ {pulls.summary()}"


class KeysFooter(Static):
    """The keys that act in every panel; those of one are in its frame, and `?` and ^p list all.

    Textual's Footer mounts and styles a widget for each key at every change of screen, which takes most of its time.
    """

    ALLOW_SELECT = False

    def __init__(self, keys: str = "") -> None:
        super().__init__(key_links(f"{keys}? help · ^p all actions · q quit"))


def machine_text(budget: Budget) -> str:
    """Return `RTX 4090 · 22.1 GiB free · 1008 GB/s`; `planned for` before a device that is not this machine's."""
    from ggbench.machine.description import GIVEN_GPU
    from ggbench.show.names import short_device
    from ggbench.sizing.budget import host_text

    device = short_device(budget.device).replace(GIVEN_GPU, "a GPU")
    memory = format_bytes(budget.memory_bytes)
    if budget.is_here:  # a limit does not tell how much is free
        memory = f"limit {memory}" if budget.memory_source.startswith("given") else f"{memory} free"
    host = f" + {text}" if (text := host_text(budget)) else ""
    rate = format_bandwidth(budget.bandwidth.bytes_per_s) if budget.bandwidth else "? GB/s"
    return f"{'' if budget.is_here else 'planned for '}{device} · {memory}{host} · {rate}"
