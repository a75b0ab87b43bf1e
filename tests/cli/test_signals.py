"""What ends a command from outside: Ctrl-C, `kill`, and a terminal that closes."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ggbench.errors import ExitCode
from ggbench.runs.store.database import Store

LONG = ("-n", "3000", "-c", "8192", "--bandwidth", "10GB/s")
"""A decode that is over once the test is."""


@contextlib.contextmanager
def decoding(twin: Path, *, ignores: str = "", terminal: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Start `ggbench decode` in a process, and return when it has stored samples."""
    code = (
        f"import signal, sys; [signal.signal(getattr(signal, n), signal.SIG_IGN) for n in {ignores.split()!r}];"
        f"from ggbench.cli.main import main; main(sys.argv[1:])"
    )
    command = [sys.executable, "-P", "-c", code, "decode", str(twin), "--repeat", "500", *LONG]
    process = subprocess.Popen(
        command, stdin=terminal, stdout=subprocess.PIPE if terminal is None else terminal,
        stderr=subprocess.PIPE if terminal is None else terminal, start_new_session=True,
    )  # fmt: skip
    try:
        with Store.open() as store:
            until = time.monotonic() + 60
            while not any(run.n_samples for run in store.list_runs()):
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < until
                time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.communicate()


def assert_kept_without_orphans(process: subprocess.Popen[bytes], workers: list[psutil.Process]) -> None:
    """Assert that the command ended as after Ctrl-C: its exit code, a partial run, and no worker left."""
    assert process.wait(timeout=30) == ExitCode.INTERRUPTED
    assert workers
    assert psutil.wait_procs(workers, timeout=30)[1] == []
    with Store.open() as store:
        assert [(run.state, run.n_samples > 0) for run in store.list_runs()] == [("cancelled", True)]


@pytest.mark.llama
def test_a_kill_stops_a_measurement_as_ctrl_c_does(tiny_twin: Path) -> None:
    with decoding(tiny_twin) as process:
        workers = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGTERM)
        assert_kept_without_orphans(process, workers)
        out, err = process.communicate()
        assert b"Traceback" not in err
        assert out


@pytest.mark.llama
def test_a_terminal_that_closes_stops_a_measurement(tiny_twin: Path) -> None:
    master, slave = pty.openpty()
    with decoding(tiny_twin, terminal=slave) as process:
        workers = psutil.Process(process.pid).children()
        os.close(slave)
        os.close(master)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGHUP)
        assert_kept_without_orphans(process, workers)


@pytest.mark.llama
def test_a_signal_that_is_ignored_stays_ignored(tiny_twin: Path) -> None:
    with decoding(tiny_twin, ignores="SIGHUP") as process:
        process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=1)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == ExitCode.INTERRUPTED


def test_a_signal_while_a_module_is_imported_has_its_exit_code() -> None:
    """CPython would kill `python -m` with SIGINT if the interrupt came during an exec(), as in a dataclass."""
    code = (
        "import os, runpy, signal, sys\n"
        "import click\n"
        "click.Group.invoke = lambda *_: exec('os.kill(os.getpid(), signal.SIGINT); signal.sigtimedwait([], 5)',"
        " globals())\n"
        "sys.argv = ['ggbench', 'models']\n"
        "runpy.run_module('ggbench', run_name='__main__')\n"
    )
    folder = Path(os.environ["HOME"])
    (folder / "interrupted_import.py").write_text(code)
    path = os.pathsep.join([str(folder), *sys.path])
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "interrupted_import"], env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr.strip()) == (ExitCode.INTERRUPTED, "Error: interrupted")
