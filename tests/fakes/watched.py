"""A queue of the TUI, and a way to wait for what it does without looking at a clock."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ggbench.tui.run_queue import RunQueue
from ggbench.tui.work_queue import PullQueue

WAIT_S = 60.0
"""Longer than anything here takes; a test that waits for so long has failed."""

Queue = TypeVar("Queue", RunQueue, PullQueue)


class WatchedQueue(Generic[Queue]):
    """A queue, and every change of it as something to wait for; made before anything is added."""

    def __init__(self, queue: Queue) -> None:
        self._changed = threading.Condition()
        self.queue: Queue = queue
        self._notify = queue._notify
        queue._notify = self._note

    def __enter__(self) -> WatchedQueue[Queue]:
        return self

    def __exit__(self, *_: object) -> None:
        self.queue.close()

    async def idle(self) -> None:
        await self.reach(lambda queue: not queue.is_busy)

    async def reach(self, reached: Callable[[Queue], bool]) -> None:
        await asyncio.to_thread(self.wait, reached)

    def wait(self, reached: Callable[[Queue], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: reached(self.queue), WAIT_S), self.queue.items

    def _note(self) -> None:
        self._notify()
        with self._changed:
            self._changed.notify_all()


def watched_runs(services: Any) -> WatchedQueue[RunQueue]:  # noqa: ANN401 - any with these two
    return WatchedQueue(RunQueue(services.open_store, services.run_context, lambda: None))
