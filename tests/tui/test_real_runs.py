"""The Run screen and its queue with the real llama.cpp: nothing is left behind, however it ends."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.machine.readings import MachineReader
from ggbench.machine.records import MachineReading
from ggbench.models.reference import parse_model
from ggbench.models.targets import resolve
from ggbench.runs.experiment import Experiment
from ggbench.runs.session import RunContext, run_context
from ggbench.runs.store.database import Store
from ggbench.stats.decode_timing import Bandwidth
from ggbench.tui.work_queue import WorkState
from tests.fakes.jobs import decodes
from tests.fakes.watched import watched_runs

pytestmark = pytest.mark.llama


@dataclass(frozen=True, slots=True)
class RealServices:
    reader: MachineReader

    def open_store(self) -> Store:
        return Store.open()

    def run_context(self, store: Store | None, experiment: Experiment) -> RunContext:
        return run_context(store, given_bandwidth=Bandwidth(20e9, "given in a test"))

    def read_machine(self) -> MachineReading:
        return self.reader.read()


def workers_of(pid: int) -> list[psutil.Process]:
    """Return the workers of a process: that of its run, and that of its plans."""
    return [
        child for child in psutil.Process(pid).children() if "ggbench.engines.llama.worker" in " ".join(child.cmdline())
    ]


def ends_within(pid: int, seconds: float) -> bool:
    """Return whether the process ends; wait for it, not for the clock."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    with os.fdopen(descriptor, "rb", closefd=True):
        return bool(select.select([descriptor], [], [], seconds)[0])


def has_samples() -> bool:
    """Return whether the app has stored samples, which it does once a second."""
    with Store.open() as store:
        return any(run.n_samples for run in store.list_runs())


def read_until(terminal: int, is_reached: Callable[[bytes], bool]) -> None:
    seen = b""
    while not is_reached(seen):
        assert select.select([terminal], [], [], 60)[0], seen[-2000:]
        seen = (seen + os.read(terminal, 1 << 16))[-50_000:]


def start(terminal: int) -> None:
    """Start a decode in the Library of many tokens, once the file is planned."""
    read_until(terminal, lambda seen: b"iB left" in seen)
    os.write(terminal, b"b")
    read_until(terminal, lambda seen: b"what to measure" in seen)
    os.write(terminal, b"100000\r")


@contextmanager
def running_app(path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Open a file in the TUI, in its own terminal, and measure it by keys; yield the process and the terminal's other
    end.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, "-P", "-m", "ggbench", "tui", "--offline", str(path)]
    environment = {**os.environ, "TERM": "xterm-256color"}
    app = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    try:
        start(ours)
        read_until(ours, lambda seen: b"p50" in seen and has_samples())
        yield app, ours
    finally:
        app.kill()
        app.wait()
        os.close(ours)


def test_a_killed_tui_leaves_no_worker_and_an_interrupted_run(tiny_twin: Path) -> None:
    with running_app(tiny_twin) as (app, _):
        workers = workers_of(app.pid)
        app.kill()
        assert all(ends_within(worker.pid, 2) for worker in workers)
    with Store.open() as store:
        (run,) = store.list_runs()
        assert run.state == Outcome.INTERRUPTED.value
        assert run.n_samples > 0


def test_a_run_is_stopped_by_a_key_and_quitting_during_the_next_one_leaves_no_worker(tiny_twin: Path) -> None:
    with running_app(tiny_twin) as (app, terminal):
        os.write(terminal, b"x")
        read_until(terminal, lambda seen: b"stopped" in seen)
        os.write(terminal, b"1")
        start(terminal)
        read_until(terminal, lambda seen: b"p50" in seen)
        workers = workers_of(app.pid)
        os.write(terminal, b"\x11")  # ctrl+q
        read_until(terminal, lambda seen: b"Stop all runs" in seen)
        os.write(terminal, b"y")
        while select.select([terminal], [], [], 60)[0]:
            try:
                os.read(terminal, 1 << 16)
            except OSError:
                break
        assert app.wait(60) == 0
        assert all(ends_within(worker.pid, 0) for worker in workers)
    with Store.open() as store:
        assert {run.state for run in store.list_runs()} == {Outcome.CANCELLED.value}


def test_stop_and_close_with_a_real_worker(tiny_twin: Path) -> None:
    target = resolve(parse_model(str(tiny_twin)))[0]
    others = workers_of(os.getpid())  # of tests before, whose engines are kept
    with watched_runs(RealServices(MachineReader())) as watched:
        queue = watched.queue
        queue.add(decodes([target, target], 100_000, LlamaConfig(threads=1)))
        watched.wait(lambda queue: queue.items[0].state is WorkState.DECODING)
        queue.stop(0)
        watched.wait(lambda queue: queue.items[0].state is WorkState.STOPPED)
        watched.wait(lambda queue: queue.items[1].state is WorkState.DECODING)
        (worker,) = set(workers_of(os.getpid())) - set(others)
        queue.close()
        assert ends_within(worker.pid, 0)
    assert queue.items[1].run is not None
    assert queue.items[1].run.outcome is Outcome.CANCELLED
