"""A command's process: signals and standard streams.

Ctrl-C, SIGTERM and SIGHUP stop a measurement at its next step and keep the results; the same command continues an
interrupted download. Streams may be closed, or have an encoding that lacks characters, such as Latin-1.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Sent by Ctrl-C; by `kill`, batch systems and a shutdown; by a closing terminal."""


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt, but only once: a closing terminal may send several."""
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
    """Let the first signal set the event, and a later Ctrl-C exit at once."""

    def on_signal(number: int, _frame: FrameType | None) -> None:
        leave_closed_terminal()
        if cancel.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        cancel.set()  # a message here could interrupt another print

    with _handled_by(on_signal):
        yield


def leave_closed_terminal() -> None:
    """Discard further output if the terminal has closed: otherwise each line would raise an error."""
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
    """Handle every stop signal except ignored ones, such as SIGHUP under `nohup`."""
    handled = [number for number in STOP_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = [(number, signal.signal(number, handler)) for number in handled]
    try:
        yield
    finally:
        for number, earlier in before:
            signal.signal(number, earlier)


def open_closed() -> None:
    """Point each closed stream at the null device, so that no other file gets its descriptor."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor
        if getattr(sys, name) is None:
            stream = open(number, "r" if name == "stdin" else "w", encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def escape_missing() -> None:
    """Make stdin, stdout and stderr escape what their encoding lacks, instead of failing."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
