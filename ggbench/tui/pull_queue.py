"""Downloads in the background, one after another, independent of the screen shown.

Independent of Textual: it notifies of a change, and the screen reads the items. A partial download is kept however it
ends, and a later one of the same file resumes from it.
"""

from __future__ import annotations

import enum
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ggbench.commands.downloads import TransferRate
from ggbench.errors import GgbenchError
from ggbench.models.targets import Target
from ggbench.units import format_bytes, format_percent

_NOTIFY_INTERVAL_S = 0.25
"""Between two notifications that only report more bytes."""
_RATE_OVER_S = 5.0
_SHUTDOWN_TIMEOUT_S = 10.0


class PullState(enum.StrEnum):
    """The state of a download; the last three are final."""

    WAITING = "waiting"
    DOWNLOADING = "downloading"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def is_over(self) -> bool:
        """Whether it is final."""
        return self in (PullState.DONE, PullState.FAILED, PullState.STOPPED)


class PullItem(msgspec.Struct, frozen=True):
    """A snapshot of one download. None is unknown."""

    id: int
    model: str
    quant: str
    state: PullState = PullState.WAITING
    done_bytes: int | None = None
    """Includes the parts of an earlier attempt."""
    total_bytes: int | None = None
    bytes_per_s: float | None = None
    """Over the last 5 s."""
    reason: str = ""
    """Why it failed and a hint, in one line; untrusted text."""
    path: Path | None = None
    """Of the first file; None until it is complete."""

    @property
    def share(self) -> float | None:
        """The fraction that is done, 0 to 1."""
        return None if self.done_bytes is None or not self.total_bytes else self.done_bytes / self.total_bytes

    @property
    def eta_s(self) -> float | None:
        """Seconds until it is done at the current rate."""
        if self.done_bytes is None or self.total_bytes is None or not self.bytes_per_s:
            return None
        return (self.total_bytes - self.done_bytes) / self.bytes_per_s


class PullQueue:
    """Downloads targets. Its methods may be called from any thread; all but `close` return at once."""

    def __init__(self, notify: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        """`notify` is called from any thread after a change; `clock` counts seconds."""
        self._notify, self._clock = notify, clock
        self._changed = threading.Condition()
        self._items: dict[int, PullItem] = {}
        self._targets: dict[int, Target] = {}
        self._stopped: set[int] = set()
        self._thread: threading.Thread | None = None
        self._is_closed = self._has_completed = False

    @property
    def items(self) -> tuple[PullItem, ...]:
        """Every download requested in this session, in order."""
        with self._changed:
            return tuple(self._items.values())

    @property
    def is_busy(self) -> bool:
        """Whether any is in progress or waiting."""
        return any(not item.state.is_over for item in self.items)

    def summary(self) -> str:
        """Return a summary such as `42 %, 2 to go`."""
        left = [item for item in self.items if not item.state.is_over]
        share = left[0].share if left else None
        return f"{format_percent(share)}, {len(left)} to go" if share is not None else f"{len(left)} to go"

    def take_completed(self) -> bool:
        """Return whether a download was completed since the last call."""
        has_completed, self._has_completed = self._has_completed, False
        return has_completed

    def add(self, targets: Sequence[Target]) -> None:
        """Queue the targets that are not queued yet; one that failed or was stopped resumes."""
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

    def retry(self, item_id: int) -> None:
        """Resume a download that failed or was stopped."""
        with self._changed:
            item = self._items.get(item_id)
            if item is None or item.state not in (PullState.FAILED, PullState.STOPPED):
                return
            self._put(item_id, self._targets[item_id])
            self._changed.notify_all()
        self._notify()

    def stop(self, item_id: int) -> None:
        """Stop a download, keeping its partial file."""
        with self._changed:
            item = self._items.get(item_id)
            if item is None or item.state.is_over:
                return
            self._stopped.add(item_id)
            if item.state is PullState.WAITING:
                self._items[item_id] = replace(item, state=PullState.STOPPED)
        self._notify()

    def close(self) -> None:
        """Stop every download, keeping partial files, and wait for the thread; may be called twice."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_SHUTDOWN_TIMEOUT_S)

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
            except Exception as error:  # a bug must neither end the queue nor go unnoticed
                self._update(item.id, state=PullState.FAILED, bytes_per_s=None, reason=f"unexpected: {error!r}")
            else:
                self._has_completed = True
                total_bytes = self._items[item.id].total_bytes
                self._update(
                    item.id, state=PullState.DONE, bytes_per_s=None, reason="", path=path, done_bytes=total_bytes
                )

    def _next(self) -> PullItem | None:
        """Wait for the next download; None once the queue is closed."""
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
        """Return the progress callback of one download; it raises CancelledError once the download is stopped."""
        transfer = TransferRate(self._clock, _RATE_OVER_S)
        notified_at = -math.inf

        def on_progress(done_bytes: int, total_bytes: int) -> None:
            nonlocal notified_at
            if self._is_closed or item_id in self._stopped:
                raise CancelledError
            transfer.update(done_bytes, total_bytes)
            if self._clock() - notified_at < _NOTIFY_INTERVAL_S:
                return
            notified_at = self._clock()
            rate = transfer.rate_bytes_per_s
            self._update(item_id, done_bytes=done_bytes, total_bytes=total_bytes, bytes_per_s=rate)

        return on_progress

    def _update(self, item_id: int, **changes: object) -> None:
        with self._changed:
            self._items[item_id] = replace(self._items[item_id], **changes)
        self._notify()


def amount_text(item: PullItem) -> str:
    """Return `1.20 GiB of 4.43 GiB`; an em dash if nothing is known yet."""
    if item.total_bytes is None:
        return format_bytes(item.total_bytes)
    if item.state is PullState.DONE:
        return format_bytes(item.total_bytes)
    return f"{format_bytes(item.done_bytes)} of {format_bytes(item.total_bytes)}"
