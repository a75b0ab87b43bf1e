"""Progress of a download by file and by origin of its bytes, and its rate, which must count only the network's."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from ggbench.hub.repo_records import RepoFile
from ggbench.units import format_bytes, format_duration

Outcome = Literal["downloaded", "continued", "copied", "already_here"]


@dataclass(frozen=True, slots=True)
class FileProgress:
    """Progress of one file."""

    file: RepoFile
    done_bytes: int
    """Bytes present, from any origin."""
    moved_bytes: int = 0
    """Bytes received over the network in this run; exceeds the file size where damaged content was fetched again."""
    copied_bytes: int = 0
    """Bytes copied in this run from another file on this disk."""
    kept_bytes: int = 0
    """Bytes left by an earlier run."""
    has_copy: bool = False
    """Whether the content is copied from another file on this disk."""

    @property
    def outcome(self) -> Outcome:
        """Where a complete file came from."""
        if self.moved_bytes:
            return "continued" if self.moved_bytes < self.file.n_bytes else "downloaded"
        if self.copied_bytes:
            return "copied"
        return "continued" if self.kept_bytes else "already_here"


def summed(files: Iterable[FileProgress]) -> tuple[int, int, int]:
    """Return the bytes present, in all, and received over the network in this run."""
    done, total, moved = zip(*((each.done_bytes, each.file.n_bytes, each.moved_bytes) for each in files), strict=True)
    return sum(done), sum(total), sum(moved)


class TransferRate:
    """Progress of one transfer."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, window_s: float = 10.0) -> None:
        """Average the rate over the last `window_s` seconds of `clock`."""
        self._clock, self._window_s = clock, window_s
        self._seen: deque[tuple[float, int]] = deque()
        self._done_bytes = 0
        self._total_bytes = 0

    def update(self, done_bytes: int, total_bytes: int, moved_bytes: int | None = None) -> None:
        """Record progress; `moved_bytes` counts the bytes that enter the rate where they differ from `done_bytes`."""
        now, counted = self._clock(), done_bytes if moved_bytes is None else moved_bytes
        if self._seen and (counted < self._seen[-1][1] or total_bytes != self._total_bytes):
            self._seen.clear()  # another file, or a restart
        self._seen.append((now, counted))
        self._done_bytes, self._total_bytes = done_bytes, total_bytes
        while len(self._seen) > 2 and now - self._seen[1][0] > self._window_s:
            self._seen.popleft()

    @property
    def rate_bytes_per_s(self) -> float | None:
        """Rate over the window; None until it can be computed."""
        if not self._seen:
            return None
        (start, before), (end, done) = self._seen[0], self._seen[-1]
        return (done - before) / (end - start) if end > start and done > before else None

    @property
    def remaining_s(self) -> float | None:
        """Time to completion at this rate, seconds; None while the rate is unknown."""
        rate = self.rate_bytes_per_s
        return None if rate is None else (self._total_bytes - self._done_bytes) / rate

    def text(self) -> str:
        """Return `1.20 GiB of 4.43 GiB, 23.5 MiB/s, 2:21 left`."""
        text = f"{format_bytes(self._done_bytes)} of {format_bytes(self._total_bytes)}"
        rate = self.rate_bytes_per_s
        if rate is None:
            return text
        text += f", {format_bytes(rate)}/s"
        return text if self._done_bytes >= self._total_bytes else f"{text}, {format_duration(self.remaining_s)} left"
