"""Downloads in the background. A partial one is kept however it ends, and a later one of the same file resumes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from pathlib import Path

from msgspec.structs import replace

from ggbench.commands.downloads import TransferRate
from ggbench.errors import GgbenchError
from ggbench.models.targets import Target
from ggbench.tui.work_queue import WorkItem, WorkQueue, WorkState
from ggbench.units import format_bytes, format_percent

_NOTIFY_INTERVAL_S = 0.25
"""Between two notifications that only report more bytes."""
_RATE_OVER_S = 5.0


class PullItem(WorkItem, frozen=True):
    """A snapshot of one download. None is unknown."""

    model: str
    quant: str
    done_bytes: int | None = None
    """Includes the parts of an earlier attempt."""
    total_bytes: int | None = None
    bytes_per_s: float | None = None
    """Over the last 5 s."""
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


class PullQueue(WorkQueue[PullItem]):
    """Downloads targets; one that failed or was stopped resumes where it was."""

    def __init__(self, notify: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(notify)
        self._clock = clock
        self._targets: dict[int, Target] = {}
        self._stopped: set[int] = set()
        self._has_completed = False

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
        """Queue the targets that are not queued yet."""
        with self._changed:
            known = {self._targets[item.id].named for item in self._items.values() if not item.state.is_over}
            for target in targets:
                if target.named not in known:
                    self._put(len(self._items), target)
        self._wake()

    def retry(self, item_id: int) -> None:
        """Resume a download that failed or was stopped."""
        with self._changed:
            item = self._items.get(item_id)
            if item is None or item.state not in (WorkState.FAILED, WorkState.STOPPED):
                return
            self._put(item_id, self._targets[item_id])
        self._wake()

    def stop(self, item_id: int) -> None:
        """Stop a download, keeping its partial file."""
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

    def _fail(self, item: PullItem, error: GgbenchError) -> None:
        reason = f"{error.message}; {error.hint}" if error.hint else error.message
        self._update(item.id, state=WorkState.FAILED, bytes_per_s=None, reason=reason)

    def _work_on(self, item: PullItem) -> None:
        target = self._targets[item.id]
        try:
            path = target.path if target.source is None else target.source.materialize(self._follow(item.id))
        except CancelledError:
            self._update(item.id, state=WorkState.STOPPED, bytes_per_s=None)
        else:
            self._has_completed = True
            total_bytes = self._items[item.id].total_bytes
            self._update(item.id, state=WorkState.DONE, bytes_per_s=None, reason="", path=path, done_bytes=total_bytes)

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


def amount_text(item: PullItem) -> str:
    """Return `1.20 GiB of 4.43 GiB`; an em dash if nothing is known yet."""
    if item.total_bytes is None:
        return format_bytes(item.total_bytes)
    if item.state is WorkState.DONE:
        return format_bytes(item.total_bytes)
    return f"{format_bytes(item.done_bytes)} of {format_bytes(item.total_bytes)}"
