"""A queue with its own thread that processes items one by one on any screen; and the queue of downloads.

It does not use Textual: it reports changes, and the screens look at the items.
"""

from __future__ import annotations

import enum
import math
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
from msgspec.structs import replace

from ggbench.errors import GgbenchError
from ggbench.models.targets import Target
from ggbench.runs.progress import Pace
from ggbench.units import format_bytes, format_count, format_percent

_SHUTDOWN_TIMEOUT_S = 10.0
_NOTIFY_INTERVAL_S = 0.25
"""Minimum time between notices of only more bytes."""


class WorkState(enum.StrEnum):
    """An item's state, in words for people; the last three are final."""

    WAITING = "waiting"
    DOWNLOADING = "downloading"
    PREPARING = "preparing"
    LOADING = "loading the model"
    PROMPT = "reading a prompt"
    DECODING = "decoding"
    SEARCHING = "measuring"
    SCORING = "scoring the text"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def is_over(self) -> bool:
        return self in (WorkState.DONE, WorkState.FAILED, WorkState.STOPPED)

    @property
    def is_at_work(self) -> bool:
        """Whether it is in progress."""
        return self is not WorkState.WAITING and not self.is_over


GLYPHS = {
    WorkState.WAITING: "·",
    WorkState.DOWNLOADING: "↓",
    WorkState.DONE: "✓",
    WorkState.FAILED: "✗",
    WorkState.STOPPED: "–",
}
"""Glyphs of states, the same in every list."""


class WorkItem(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    state: WorkState = WorkState.WAITING
    reason: str = ""
    """Why it failed or was stopped, in one line; untrusted text."""


Item = TypeVar("Item", bound=WorkItem)


class WorkQueue(Generic[Item]):
    """A queue; methods may be called from any thread, and all but `close` return at once."""

    def __init__(self, notify: Callable[[], None]) -> None:
        """`notify` is called on changes, from the queue's thread or the caller's."""
        self._notify = notify
        self._changed = threading.Condition()
        self._items: dict[int, Item] = {}
        self._thread: threading.Thread | None = None
        self._is_closed = False

    @property
    def items(self) -> tuple[Item, ...]:
        with self._changed:
            return tuple(self._items.values())

    @property
    def is_busy(self) -> bool:
        return any(not item.state.is_over for item in self.items)

    @property
    def waiting_text(self) -> str:
        """Return `, 2 queued`; empty if nothing waits."""
        n_waiting = sum(item.state is WorkState.WAITING for item in self.items)
        return f", {format_count(n_waiting)} queued" if n_waiting else ""

    def close(self) -> None:
        """Stop everything and wait for the thread; may be called twice."""
        with self._changed:
            self._is_closed = True
            self._stop_work()
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_SHUTDOWN_TIMEOUT_S)

    @abstractmethod
    def _work_on(self, item: Item) -> None:
        """Process an item. Raises GgbenchError."""

    @abstractmethod
    def _begin(self, waiting: Item) -> Item:
        """Return the item in its first working state. Called with the lock held."""

    def _stop_work(self) -> None:
        """Stop the item in progress because the queue closes. Called with the lock held."""

    def _report(self) -> None:
        self._notify()

    def _wake(self) -> None:
        """Wake the thread, starting it for the first item."""
        with self._changed:
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._work, name=type(self).__name__, daemon=True)
                self._thread.start()
            self._changed.notify_all()
        self._report()

    def _work(self) -> None:
        while (item := self._next()) is not None:
            try:
                self._work_on(item)
            except GgbenchError as error:
                self._update(item.id, state=WorkState.FAILED, reason=error.line)
            except Exception as error:  # a bug must neither end the queue nor go unnoticed
                self._update(item.id, state=WorkState.FAILED, reason=f"unexpected: {error!r}")

    def _next(self) -> Item | None:
        """Wait for the next item; None once the queue is closed."""
        with self._changed:
            while not self._is_closed:
                waiting = next((item for item in self._items.values() if item.state is WorkState.WAITING), None)
                if waiting is not None:
                    begun = self._items[waiting.id] = self._begin(waiting)
                    break
                self._changed.wait()
            else:
                return None
        self._report()
        return begun

    def _update(self, item_id: int, **changes: object) -> None:
        with self._changed:
            self._items[item_id] = replace(self._items[item_id], **changes)
        self._report()


class PullItem(WorkItem, frozen=True):
    """One download. None is unknown."""

    model: str
    quant: str
    done_bytes: int | None = None
    """Includes the parts of an earlier attempt."""
    total_bytes: int | None = None
    bytes_per_s: float | None = None
    left_s: float | None = None
    path: Path | None = None
    """The first file; None until it is complete."""

    @property
    def share(self) -> float | None:
        if self.state is WorkState.DONE:
            return 1.0
        return None if self.done_bytes is None or not self.total_bytes else self.done_bytes / self.total_bytes

    @property
    def amount(self) -> str:
        """Return `1.20 GiB of 4.43 GiB`; an em dash if unknown."""
        total = format_bytes(self.total_bytes)
        is_part = self.total_bytes is not None and self.state is not WorkState.DONE
        return f"{format_bytes(self.done_bytes)} of {total}" if is_part else total


class PullQueue(WorkQueue[PullItem]):
    """Downloads targets; a failed or stopped one resumes where it stopped."""

    def __init__(self, notify: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(notify)
        self._clock = clock
        self._targets: dict[int, Target] = {}
        self._stopped: set[int] = set()

    def summary(self) -> str:
        """Return a summary such as `42 %, 2 queued`."""
        share = next((item.share for item in self.items if item.state.is_at_work), None)
        return f"{'downloading' if share is None else format_percent(share)}{self.waiting_text}"

    def add(self, targets: Sequence[Target]) -> None:
        with self._changed:
            known = {self._targets[item.id].named for item in self._items.values() if not item.state.is_over}
            for target in targets:
                if target.named not in known:
                    self._put(len(self._items), target)
        self._wake()

    def retry(self, item_id: int) -> None:
        with self._changed:
            item = self._items.get(item_id)
            if item is not None and item.state in (WorkState.FAILED, WorkState.STOPPED):
                self._put(item_id, self._targets[item_id])
        self._wake()

    def stop(self, item_id: int) -> None:
        with self._changed:
            item = self._items.get(item_id)
            if item is None or item.state.is_over:
                return
            self._stopped.add(item_id)
            if item.state is WorkState.WAITING:
                self._items[item_id] = replace(item, state=WorkState.STOPPED)
        self._notify()

    def _put(self, item_id: int, target: Target) -> None:
        self._stopped.discard(item_id)
        self._items[item_id] = PullItem(target.model, target.selector or target.quant, id=item_id)
        self._targets[item_id] = target

    def _begin(self, waiting: PullItem) -> PullItem:
        return replace(waiting, state=WorkState.DOWNLOADING)

    def _work_on(self, item: PullItem) -> None:
        target = self._targets[item.id]
        try:
            path = target.path
            if target.source is not None:
                path = target.source.materialize(self._follow(item.id)).paths[0]
        except CancelledError:
            self._update(item.id, state=WorkState.STOPPED)
        else:
            total_bytes = self._items[item.id].total_bytes
            self._update(item.id, state=WorkState.DONE, reason="", path=path, done_bytes=total_bytes)
            del self._targets[item.id]  # it has a header, which may take several MB

    def _follow(self, item_id: int) -> Callable[[int, int], None]:
        """Return the progress callback of one download; it raises CancelledError once the download is stopped."""
        pace = Pace(self._clock)
        notified_at = -math.inf

        def on_progress(done_bytes: int, total_bytes: int) -> None:
            nonlocal notified_at
            if self._is_closed or item_id in self._stopped:
                raise CancelledError
            pace.update(done_bytes, total_bytes)
            if self._clock() - notified_at < _NOTIFY_INTERVAL_S:
                return
            notified_at = self._clock()
            sizes = {"done_bytes": done_bytes, "total_bytes": total_bytes}
            self._update(item_id, **sizes, bytes_per_s=pace.per_s, left_s=pace.left_s)

        return on_progress
