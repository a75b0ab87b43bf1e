"""What Ctrl-C does: it stops a measurement at its next step, and a download so that the same command continues it."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING

import click

from ggbench.errors import ExitCode

if TYPE_CHECKING:
    from ggbench.cli.output import Output

DOWNLOAD_INTERRUPTED = "interrupted; the downloaded part is kept, and the same command continues from there"


@contextlib.contextmanager
def interrupt_sets(cancel: threading.Event) -> Iterator[None]:
    """The first Ctrl-C sets the event, the second one exits at once."""

    def on_interrupt(_number: int, _frame: FrameType | None) -> None:
        if cancel.is_set():
            raise KeyboardInterrupt
        cancel.set()  # and no more: a handler that prints may interrupt a print

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def interruptible(output: Output) -> Iterator[None]:
    """While the Hub is asked what it has, Ctrl-C loses nothing: print so and end the command with 130."""
    try:
        yield
    except KeyboardInterrupt:
        output.notice(DOWNLOAD_INTERRUPTED)
        raise click.exceptions.Exit(ExitCode.INTERRUPTED) from None
