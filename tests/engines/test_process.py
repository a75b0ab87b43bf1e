"""The parent's side of a worker, against one that speaks the real protocol and misbehaves on cue."""

import os
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from ggbench.engines import protocol
from ggbench.engines.contract import Decode, Request
from ggbench.engines.endings import Cancelled, Completed, Crashed, Ending, Failed, OutOfMemory, TimedOut
from ggbench.engines.events import PromptRead, Ready, Steps
from ggbench.engines.llama.config import LlamaConfig, LoadModel
from ggbench.engines.process import WorkerProcess

FAKE = Path(__file__).parent.parent / "fakes" / "worker.py"
DECODE = Decode(n_prompt=25, n_gen=3)


def start(cue: str, *, cancel: threading.Event | None = None, timeout_s: float = 60) -> WorkerProcess:
    return WorkerProcess(cancel, timeout_s, command=(sys.executable, str(FAKE), cue))


def ending_of(worker: WorkerProcess, request: Request = DECODE) -> Ending:
    *_, last = worker.call(request)
    assert isinstance(last, Ending)
    return last


def wait_for_end(pid_fd: int) -> bool:
    """Whether the process ends; waits for it, and not by the clock."""
    return bool(select.select([pid_fd], [], [], 30)[0])


def test_a_call_yields_messages_and_one_ending() -> None:
    with closing(start("obey")) as worker:
        ready, *items = worker.call(DECODE)
        again = list(worker.call(DECODE))
    assert isinstance(ready, Ready)
    assert items == [PromptRead(25, 5_000_000), Steps(26, [1_000_000] * 3, [1000] * 3), Completed()]
    assert again == items


def test_an_abort_is_a_value_with_its_last_output() -> None:
    with closing(start("abort")) as worker:
        first, second = ending_of(worker), ending_of(worker)
    assert isinstance(first, Crashed)
    assert first.returncode == -signal.SIGABRT
    assert first.reason == "llama.cpp was killed by SIGABRT: GGML_ASSERT(something) failed"
    assert isinstance(second, Crashed)


def test_an_abort_that_blames_memory_is_out_of_memory() -> None:
    with closing(start("abort_out_of_memory")) as worker:
        ending = ending_of(worker)
    assert isinstance(ending, OutOfMemory)
    assert not ending.alive
    assert ending.stage == "decode"
    assert "cudaMalloc failed" in ending.message


@pytest.mark.parametrize(
    ("counts", "kind", "reason"),
    [((4, 4), Crashed, "killed by SIGKILL"), ((None, None), Crashed, "SIGKILL"), ((4, 5), OutOfMemory, "ran out")],
)
def test_a_killed_worker_has_crashed_unless_the_kernel_has_killed_for_memory(
    monkeypatch: pytest.MonkeyPatch, counts: tuple[int | None, int | None], kind: type[Ending], reason: str
) -> None:
    """Linux overcommits and then kills; its counter of such kills has risen since the worker began."""
    answers = iter(counts)
    for module in ("engines.process", "machine.host"):
        monkeypatch.setattr(f"ggbench.{module}.count_oom_kills", lambda: next(answers))
    with closing(start("killed")) as worker:
        ending = ending_of(worker)
    assert isinstance(ending, kind) and reason in ending.reason
    assert not isinstance(ending, OutOfMemory) or not ending.alive


def test_a_caller_that_pauses_does_not_make_the_worker_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(start("flood")) as worker:
        items = worker.call(DECODE)
        assert isinstance(next(items), Ready)
        assert select.select([worker._events.fd], [], [], 30)[0]  # more than one read takes
        later = time.monotonic() + 1000
        monkeypatch.setattr("ggbench.engines.process.time.monotonic", lambda: later)
        assert list(items)[-1] == Completed()


@pytest.mark.parametrize("cue", ["hang", "log"])
def test_silence_ends_in_a_time_out(cue: str) -> None:
    """Also that of a worker which only logs."""
    with closing(start(cue, timeout_s=0.2)) as worker:
        pid_fd = os.pidfd_open(worker.pid)
        assert ending_of(worker) == TimedOut(0.2)
        assert wait_for_end(pid_fd)
    os.close(pid_fd)


@pytest.mark.parametrize("cue", ["garbage", "endless_line", "not_utf8"])
def test_garbage_ends_the_worker(cue: str) -> None:
    with closing(start(cue)) as worker:
        ending = ending_of(worker)
    assert isinstance(ending, Crashed)
    assert ending.reason == "the worker wrote something that is not a message"


def test_a_closed_pipe_of_a_living_worker_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ggbench.engines.process._SHUTDOWN_TIMEOUT_S", 0.1)
    with closing(start("close_pipe")) as worker:
        pid_fd = os.pidfd_open(worker.pid)
        assert "did not exit" in ending_of(worker).reason
        assert wait_for_end(pid_fd)
    os.close(pid_fd)


def test_a_flood_of_log_lines_loses_nothing() -> None:
    with closing(start("flood")) as worker:
        items = list(worker.call(DECODE))
    logged = [item.text for item in items if isinstance(item, protocol.Log)]
    assert logged == [f"line {number}" for number in range(50_000)]
    assert items[-1] == Completed()


@pytest.mark.parametrize(
    ("cue", "expected"),
    [
        ("refuse", Failed("load", "unknown architecture")),
        ("refuse_memory", OutOfMemory("context", "failed to allocate")),
    ],
)
def test_a_refusal_leaves_the_worker_alive(cue: str, expected: Ending) -> None:
    with closing(start(cue)) as worker:
        pid = worker.pid
        assert ending_of(worker) == expected
        assert ending_of(worker) == expected
        assert worker.pid == pid


def test_cancel_ends_a_worker_that_hangs() -> None:
    cancel = threading.Event()
    with closing(start("hang", cancel=cancel)) as worker:
        pid_fd = os.pidfd_open(worker.pid)
        threading.Timer(0.05, cancel.set).start()
        assert ending_of(worker) == Cancelled()
        assert wait_for_end(pid_fd)
    os.close(pid_fd)


PARENT = """
import sys
from ggbench.engines.llama.config import LlamaConfig, LoadModel
from ggbench.engines.process import WorkerProcess
worker = WorkerProcess(command=sys.argv[1:] or (sys.executable, "-P", "-m", "ggbench.engines.llama.worker"))
events = worker.call(LoadModel("/nowhere.gguf", LlamaConfig()))
print(next(events).pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.llama
def test_the_worker_ends_when_its_parent_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        pid_fd = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
        assert wait_for_end(pid_fd)
    os.close(pid_fd)


def test_a_file_name_that_is_not_utf8_is_refused_by_name() -> None:
    """Linux allows one, JSON does not; the worker takes the next request."""
    with closing(start("obey")) as worker:
        refused = ending_of(worker, LoadModel("caf\udce9.gguf", LlamaConfig()))
        assert isinstance(refused, Failed) and "UTF-8" in refused.reason
        assert ending_of(worker) == Completed()
