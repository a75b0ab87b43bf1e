"""The Run screen and its queue with the real llama.cpp: nothing is left behind, however it ends."""

import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.machine.readings import MachineReader
from ggbench.models.reference import parse_model
from ggbench.models.targets import resolve
from ggbench.runs.store.database import Store
from ggbench.tui.work_queue import WorkState
from tests.fakes.jobs import decodes
from tests.fakes.run_app import RealServices
from tests.fakes.watched import watched_runs

pytestmark = pytest.mark.llama

RUN_APP = Path(__file__).parent.parent / "fakes" / "run_app.py"


def worker_of(pid: int) -> psutil.Process:
    (worker,) = [
        child for child in psutil.Process(pid).children() if "ggbench.engines.llama.worker" in " ".join(child.cmdline())
    ]
    return worker


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


@contextmanager
def running_app(path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run the app in its own terminal, decoding; yield it and the terminal's other end."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    app = subprocess.Popen(
        [sys.executable, str(RUN_APP), str(path)], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    try:
        seen = b""
        while not (b"p50" in seen and has_samples()):
            assert select.select([ours], [], [], 60)[0], seen[-2000:]
            seen = (seen + os.read(ours, 1 << 16))[-20_000:]
        yield app, ours
    finally:
        app.kill()
        app.wait()
        os.close(ours)


def test_a_killed_tui_leaves_no_worker_and_an_interrupted_run(tiny_twin: Path) -> None:
    with running_app(tiny_twin) as (app, _):
        worker = worker_of(app.pid)
        app.kill()
        assert ends_within(worker.pid, 2)
    with Store.open() as store:
        (run,) = store.list_runs()
        assert run.state == Outcome.INTERRUPTED.value
        assert run.n_samples > 0


def test_quitting_in_mid_run_leaves_no_worker(tiny_twin: Path) -> None:
    with running_app(tiny_twin) as (app, terminal):
        worker = worker_of(app.pid)
        os.write(terminal, b"\x11")  # ctrl+q
        while select.select([terminal], [], [], 60)[0]:
            try:
                os.read(terminal, 1 << 16)
            except OSError:
                break
        assert app.wait(60) == 0
        assert ends_within(worker.pid, 0)
    with Store.open() as store:
        (run,) = store.list_runs()
    assert run.state == Outcome.CANCELLED.value


def test_pause_skip_and_close_with_a_real_worker(tiny_twin: Path) -> None:
    target = resolve(parse_model(str(tiny_twin)))[0]
    with watched_runs(RealServices(MachineReader())) as watched:
        queue = watched.queue
        queue.add(decodes([target, target], 100_000, LlamaConfig(threads=1)))
        watched.wait(lambda queue: queue.items[0].state is WorkState.DECODING)
        queue.pause()
        queue.skip()
        watched.wait(lambda queue: queue.items[0].state is WorkState.SKIPPED)
        assert queue.items[1].state is WorkState.WAITING
        queue.resume()
        watched.wait(lambda queue: queue.items[1].state is WorkState.DECODING)
        worker = worker_of(os.getpid())
        queue.close()
        assert ends_within(worker.pid, 0)
    assert queue.items[1].run is not None
    assert queue.items[1].run.outcome is Outcome.CANCELLED
