"""A target's file, made or downloaded before it is measured."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Generator
from concurrent.futures import CancelledError, ThreadPoolExecutor

from ggbench.catalog.selector import Target, materialize
from ggbench.gguf_file.model_file import ModelFile
from ggbench.recording.progress import Stage, Working


def prepare(target: Target, cancel: threading.Event) -> Generator[Working, None, ModelFile]:
    """The target's file; made in a thread, so that its progress can be reported.

    Raises CancelledError once `cancel` is set, and what `materialize` raises.
    """
    updates: queue.SimpleQueue[Working] = queue.SimpleQueue()
    stage: Stage = "download" if target.download_bytes > 0 else "write"
    abandoned = threading.Event()

    def on_progress(done_bytes: int, total_bytes: int) -> None:
        if cancel.is_set() or abandoned.is_set():
            raise CancelledError
        updates.put(Working(stage, done_bytes, total_bytes))

    with ThreadPoolExecutor(max_workers=1) as pool:
        file = pool.submit(materialize, target, on_progress)
        try:
            while not file.done():
                with contextlib.suppress(queue.Empty):
                    yield updates.get(timeout=0.05)
        finally:
            abandoned.set()
    return file.result()
