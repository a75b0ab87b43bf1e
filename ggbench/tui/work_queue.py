"""A queue whose items are worked off one after another in a thread of its own, whatever screen is shown.

Knows nothing of Textual: it notifies of a change, and whoever draws looks at the items.
"""

from __future__ import annotations

import enum
import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec
from msgspec.structs import replace

from ggbench.errors import GgbenchError

_SHUTDOWN_TIMEOUT_S = 10.0


class WorkState(enum.StrEnum):
    """Where an item is; the last five are its end."""

    WAITING = "waiting"
    DOWNLOADING = "downloading"
    PREPARING = "preparing"
    LOADING = "loading"
    PROMPT = "prompt"
    DECODING = "decoding"
    SEARCHING = "searching"
    SCORING = "scoring"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    STOPPED = "stopped"

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes of it."""
        return self in (WorkState.DONE, WorkState.FAILED) or self.is_left

    @property
    def is_left(self) -> bool:
        """Whether the user ended it."""
        return self in (WorkState.SKIPPED, WorkState.CANCELLED, WorkState.STOPPED)

    @property
    def is_at_work(self) -> bool:
        """Whether it is in progress, or held while it is."""
        return self is not WorkState.WAITING and not self.is_over


GLYPHS = {
    WorkState.WAITING: "·", WorkState.DOWNLOADING: "↓", WorkState.DONE: "✓", WorkState.FAILED: "✗",
    WorkState.SKIPPED: "–", WorkState.CANCELLED: "–", WorkState.STOPPED: "–",
}  # fmt: skip
"""Of the states that look the same in every list."""


class WorkItem(msgspec.Struct, frozen=True, kw_only=True):
    """One item as it is now."""

    id: int
    state: WorkState = WorkState.WAITING
    reason: str = ""
    """Why it failed or was left, in one line; untrusted text."""


Item = TypeVar("Item", bound=WorkItem)


class WorkQueue(Generic[Item]):
    """Its methods may be called from any thread; all but `close` return at once."""

    def __init__(self, notify: Callable[[], None]) -> None:
        """`notify` is called, from the queue's thread or the caller's, when something changed."""
        self._notify = notify
        self._changed = threading.Condition()
        self._items: dict[int, Item] = {}
        self._thread: threading.Thread | None = None
        self._is_closed = False

    @property
    def items(self) -> tuple[Item, ...]:
        """Every item of this session, in order."""
        with self._changed:
            return tuple(self._items.values())

    @property
    def is_busy(self) -> bool:
        """Whether any is in progress or waits."""
        return any(not item.state.is_over for item in self.items)

    def close(self) -> None:
        """End everything and wait for the thread; may be called twice."""
        with self._changed:
            self._is_closed = True
            self._stop_work()
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_SHUTDOWN_TIMEOUT_S)

    @abstractmethod
    def _work_on(self, item: Item) -> None:
        """Do what an item asks for. Raises GgbenchError."""

    def _fail(self, item: Item, error: GgbenchError) -> None:
        self._update(item.id, state=WorkState.FAILED, reason=error.message)

    @abstractmethod
    def _begin(self, waiting: Item) -> Item | None:
        """Return the item in its first state of work; None where none is to begin. Called with the lock."""

    def _stop_work(self) -> None:
        """Stop what is in progress, as the queue closes. Called with the lock."""

    def _report(self) -> None:
        self._notify()

    def _wake(self) -> None:
        """Let the thread look for work; it starts with the first."""
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
                self._fail(item, error)
            except Exception as error:  # a bug must neither end the queue nor go unnoticed
                self._fail(item, GgbenchError(f"unexpected: {error!r}"))

    def _next(self) -> Item | None:
        """Wait for the next item; None once the queue is closed."""
        with self._changed:
            while not self._is_closed:
                waiting = next((item for item in self._items.values() if item.state is WorkState.WAITING), None)
                if waiting is not None and (begun := self._begin(waiting)) is not None:
                    self._items[begun.id] = begun
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
