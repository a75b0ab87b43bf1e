"""What Ctrl-C, SIGTERM and SIGHUP do: a measurement stops at its next step and what was measured is kept, a download so
that the same command continues it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING

import click

from ggbench.errors import ExitCode

if TYPE_CHECKING:
    from ggbench.commands.output import Output

DOWNLOAD_INTERRUPTED = "interrupted; the downloaded part is kept, and the same command continues from there"
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C; what `kill`, a batch system and a shutdown send; a terminal that closes."""


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM and SIGHUP raise KeyboardInterrupt, once: a terminal that closes may send several."""
    is_stopped = False

    def on_signal(number: int, _frame: FrameType | None) -> None:
        nonlocal is_stopped
        leave_closed_terminal()
        if number == signal.SIGINT or not is_stopped:
            is_stopped = True
            raise KeyboardInterrupt

    with _handled_by(on_signal):
        yield


@contextlib.contextmanager
def interrupt_sets(cancel: threading.Event) -> Iterator[None]:
    """The first signal sets the event, and a Ctrl-C after it exits at once."""

    def on_signal(number: int, _frame: FrameType | None) -> None:
        leave_closed_terminal()
        if cancel.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        cancel.set()  # and no more: a handler that prints may interrupt a print

    with _handled_by(on_signal):
        yield


@contextlib.contextmanager
def interruptible(output: Output) -> Iterator[None]:
    """While the Hub is asked what it has, Ctrl-C loses nothing: print so and end the command with 130."""
    try:
        yield
    except KeyboardInterrupt:
        output.notice(DOWNLOAD_INTERRUPTED)
        raise click.exceptions.Exit(ExitCode.INTERRUPTED) from None


def leave_closed_terminal() -> None:
    """Send what is still written to a terminal that has closed to nowhere, instead of an error at each line."""
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            try:
                os.write(stream.fileno(), b"")
            except OSError:
                discard_output(stream.fileno())


def discard_output(descriptor: int) -> None:
    """Point a descriptor at the null device."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)


@contextlib.contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle every stop signal that is not ignored, as `nohup` has it for SIGHUP."""
    handled = [number for number in STOP_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = [(number, signal.signal(number, handler)) for number in handled]
    try:
        yield
    finally:
        for number, earlier in before:
            signal.signal(number, earlier)
