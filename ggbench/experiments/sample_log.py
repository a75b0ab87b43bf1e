"""The samples of one trial: kept whole for the fit, and appended to the store at least once a second."""

from __future__ import annotations

import time

from ggbench.engine.protocol import Decoded
from ggbench.store.database import Store

_STORE_EVERY_S = 1.0


class SampleLog:
    """Decode steps in the order they were timed; repetitions follow each other, each from the first position on."""

    def __init__(self) -> None:
        self.position: list[int] = []
        self.step_ns: list[int] = []
        self.sample_ns: list[int] = []
        self._repeat = 0
        self._stored = 0
        self._stored_at = time.monotonic()
        self._store: Store | None = None
        self._run_id: int | None = None

    def keep_in(self, store: Store, run_id: int) -> None:
        """Append to this run of the store from here on."""
        self._store, self._run_id = store, run_id

    def add(self, event: Decoded) -> None:
        """Take in some steps of the running repetition."""
        self.position.extend(range(event.first_position, event.first_position + len(event.step_ns)))
        self.step_ns.extend(event.step_ns)
        self.sample_ns.extend(event.sample_ns)
        if time.monotonic() - self._stored_at >= _STORE_EVERY_S:
            self.flush()

    def end_repetition(self) -> None:
        """What comes next starts again from the first position."""
        self.flush()
        self._repeat += 1

    def flush(self) -> None:
        """Append to the store what it does not have yet. Raises StoreError."""
        start, end = self._stored, len(self.step_ns)
        self._stored_at = time.monotonic()
        if self._store is None or self._run_id is None or start == end:
            return
        self._store.append_samples(
            self._run_id, self._repeat, self.position[start], self.step_ns[start:end], self.sample_ns[start:end]
        )
        self._stored = end
