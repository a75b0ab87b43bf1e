"""Downloads in the background, one after another, whatever screen is in front.

Knows nothing of Textual: it says that something changed, and whoever draws looks. What was moved is kept whatever
ends a download, so that the same one asked for again goes on from there.
"""

from __future__ import annotations

import enum
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from pathlib import Path

from ggbench.catalog.selector import Target
from ggbench.errors import GgbenchError
from ggbench.experiments.transfer import Transfer
from ggbench.units import format_bytes, format_percent

_TELL_EVERY_S = 0.25
"""Between two notices that only tell of more bytes."""
_RATE_OVER_S = 5.0
_FAREWELL_S = 10.0


class PullState(enum.StrEnum):
    """Where a download is; the last three are its end."""

    WAITING = "waiting"
    DOWNLOADING = "downloading"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes of it."""
        return self in (PullState.DONE, PullState.FAILED, PullState.STOPPED)


@dataclass(frozen=True, slots=True)
class PullItem:
    """One download as it is now. None is unknown."""

    id: int
    model: str
    quant: str
    state: PullState = PullState.WAITING
    done_bytes: int | None = None
    """What is there, parts of an earlier try counted."""
    total_bytes: int | None = None
    bytes_per_s: float | None = None
    """Over the last seconds."""
    reason: str = ""
    """Why it failed and what to do, in one line; not yet plain."""
    path: Path | None = None
    """Of the first file, once it is there."""

    @property
    def share(self) -> float | None:
        """What is there of the whole, 0 to 1."""
        return None if self.done_bytes is None or not self.total_bytes else self.done_bytes / self.total_bytes

    @property
    def eta_s(self) -> float | None:
        """Seconds to its end at this rate."""
        if self.done_bytes is None or self.total_bytes is None or not self.bytes_per_s:
            return None
        return (self.total_bytes - self.done_bytes) / self.bytes_per_s


class PullQueue:
    """Takes targets and downloads them. Its methods may be called from any thread; all but `close` return at once."""

    def __init__(self, notify: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        """`notify` is called, from any thread, when something changed; `clock` counts seconds."""
        self._notify, self._clock = notify, clock
        self._changed = threading.Condition()
        self._items: dict[int, PullItem] = {}
        self._targets: dict[int, Target] = {}
        self._stopped: set[int] = set()
        self._thread: threading.Thread | None = None
        self._is_closed = self._has_news = False

    @property
    def items(self) -> tuple[PullItem, ...]:
        """Every download that was ever asked for, in order."""
        with self._changed:
            return tuple(self._items.values())

    @property
    def is_busy(self) -> bool:
        """Whether any goes on or waits."""
        return any(not item.state.is_over for item in self.items)

    def summary(self) -> str:
        """`42 %, 2 to go`."""
        left = [item for item in self.items if not item.state.is_over]
        share = left[0].share if left else None
        return f"{format_percent(share)}, {len(left)} to go" if share is not None else f"{len(left)} to go"

    def take_news_of_files(self) -> bool:
        """Whether a download was completed since the last time this was asked."""
        had_news, self._has_news = self._has_news, False
        return had_news

    def add(self, targets: Sequence[Target]) -> None:
        """Put those that are not there yet at the end; one that failed or was stopped begins again where it was."""
        with self._changed:
            known = {self._targets[item.id].named for item in self._items.values() if not item.state.is_over}
            for target in targets:
                if target.named not in known:
                    self._put(len(self._items), target)
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._work, name="pull-queue", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        self._notify()

    def again(self, item_id: int) -> None:
        """Go on with one that failed or was stopped."""
        with self._changed:
            item = self._items.get(item_id)
            if item is None or item.state not in (PullState.FAILED, PullState.STOPPED):
                return
            self._put(item_id, self._targets[item_id])
            self._changed.notify_all()
        self._notify()

    def stop(self, item_id: int) -> None:
        """End one, keeping its part."""
        with self._changed:
            item = self._items.get(item_id)
            if item is None or item.state.is_over:
                return
            self._stopped.add(item_id)
            if item.state is PullState.WAITING:
                self._items[item_id] = replace(item, state=PullState.STOPPED)
        self._notify()

    def close(self) -> None:
        """End everything, keeping the parts, and wait for it; may be called twice."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_FAREWELL_S)

    def _put(self, item_id: int, target: Target) -> None:
        self._stopped.discard(item_id)
        self._items[item_id] = PullItem(item_id, target.model, target.selector or target.quant)
        self._targets[item_id] = target

    def _work(self) -> None:
        while (item := self._next()) is not None:
            try:
                source = self._targets[item.id].source
                path = self._targets[item.id].path if source is None else source.materialize(self._follow(item.id))
            except CancelledError:
                self._update(item.id, state=PullState.STOPPED, bytes_per_s=None)
            except GgbenchError as error:
                reason = f"{error.message}; {error.hint}" if error.hint else error.message
                self._update(item.id, state=PullState.FAILED, bytes_per_s=None, reason=reason)
            except Exception as error:  # a fault of ours must not end the queue, nor hide
                self._update(item.id, state=PullState.FAILED, bytes_per_s=None, reason=f"unexpected: {error!r}")
            else:
                self._has_news = True
                total_bytes = self._items[item.id].total_bytes
                self._update(
                    item.id, state=PullState.DONE, bytes_per_s=None, reason="", path=path, done_bytes=total_bytes
                )

    def _next(self) -> PullItem | None:
        """The next one, once there is one; None once the queue is closed."""
        with self._changed:
            while not self._is_closed:
                waiting = next((item for item in self._items.values() if item.state is PullState.WAITING), None)
                if waiting is not None:
                    self._items[waiting.id] = waiting = replace(waiting, state=PullState.DOWNLOADING)
                    break
                self._changed.wait()
            else:
                return None
        self._notify()  # a server may take long to send the first byte
        return waiting

    def _follow(self, item_id: int) -> Callable[[int, int], None]:
        """What to tell of the bytes of one download; it raises once they are not wanted any more."""
        transfer = Transfer(self._clock, _RATE_OVER_S)
        told_at = -math.inf

        def on_progress(done_bytes: int, total_bytes: int) -> None:
            nonlocal told_at
            if self._is_closed or item_id in self._stopped:
                raise CancelledError
            transfer.note(done_bytes, total_bytes)
            if self._clock() - told_at < _TELL_EVERY_S:
                return
            told_at = self._clock()
            rate = transfer.rate_bytes_per_s
            self._update(item_id, done_bytes=done_bytes, total_bytes=total_bytes, bytes_per_s=rate)

        return on_progress

    def _update(self, item_id: int, **changes: object) -> None:
        with self._changed:
            self._items[item_id] = replace(self._items[item_id], **changes)  # type: ignore[arg-type]
        self._notify()


def amount_text(item: PullItem) -> str:
    """`1.20 GiB of 4.43 GiB`; an em dash before anything is known."""
    if item.total_bytes is None:
        return format_bytes(item.total_bytes)
    if item.state is PullState.DONE:
        return format_bytes(item.total_bytes)
    return f"{format_bytes(item.done_bytes)} of {format_bytes(item.total_bytes)}"
