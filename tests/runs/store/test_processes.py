import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from ggbench.errors import StoreError
from ggbench.runs.run import RunHead
from ggbench.runs.store.database import Store
from ggbench.runs.store.runs import StoredRun

WRITER = """
import sys
from pathlib import Path
from ggbench.experiments.decode.record import DecodeSettings
from ggbench.runs.run import RunHead
from ggbench.engines.llama.config import LlamaConfig
from ggbench.models.subject import Subject
from ggbench.runs.store.database import Store

setup, settings = LlamaConfig(), DecodeSettings(300)
head = RunHead(kind="decode", subject=Subject(model="m", quant="q8_0", source="file"), setup=setup, settings=settings)
store = Store.open(Path(sys.argv[1]))
run_id = store.begin(head)
for chunk in range(int(sys.argv[2])):
    store.append_samples(run_id, "decode/p25/b1/r0", chunk * 10, [run_id * 1000 + chunk] * 10, [1] * 10)
print(run_id, flush=True)
sys.stdin.readline()
store.close()
"""


@contextmanager
def writer(path: Path, n_chunks: int) -> Iterator[subprocess.Popen[str]]:
    """Another process that stores chunks of ten samples, says its run's id and waits for a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(n_chunks)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def run_id_said_by(process: subprocess.Popen[str]) -> int:
    """The id of the run that a writer has begun, once all its chunks are stored."""
    assert process.stdout is not None
    return int(process.stdout.readline())


@pytest.mark.parametrize("reaped", [True, False])
def test_a_killed_process_leaves_its_samples_in_an_interrupted_run(path: Path, reaped: bool) -> None:
    """Also while its parent has not yet taken note of its death, as under a shell that still waits."""
    with writer(path, 30) as process:
        run_id = run_id_said_by(process)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | (0 if reaped else os.WNOWAIT))
        with Store.open(path) as store:
            run = store.load_run(run_id)
            samples = store.load_samples(run_id)
            assert (run.state, run.n_samples, run.result_json, run.finished_at) == ("interrupted", 300, None, None)
            assert samples.position.tolist() == list(range(300))
            assert samples.step_ns.tolist() == [run_id * 1000 + chunk for chunk in range(30) for _ in range(10)]
            store.delete_run(run_id)
            assert store.list_runs() == ()


def test_a_store_that_stays_open_notices_that_another_process_died(path: Path) -> None:
    with Store.open(path) as store, writer(path, 1) as process:
        run_id_said_by(process)
        assert [run.state for run in store.list_runs()] == ["running"]
        process.kill()
        process.wait()
        assert [run.state for run in store.list_runs()] == ["interrupted"]


def test_a_run_of_a_live_process_keeps_running_and_cannot_be_deleted(path: Path) -> None:
    with writer(path, 2) as process:
        run_id = run_id_said_by(process)
        with Store.open(path) as store:
            assert store.load_run(run_id).state == "running"
            with pytest.raises(StoreError, match=f"still running in process {process.pid}"):
                store.delete_run(run_id)
            assert store.load_run(run_id).n_samples == 20


def test_a_run_of_another_container_is_neither_ended_nor_deleted(path: Path) -> None:
    """Its pid is another process's here, or no one's."""
    with writer(path, 1) as process:
        run_id = run_id_said_by(process)
        for pid in (1 << 22, os.getpid()):
            with contextlib.closing(sqlite3.connect(path)) as raw, raw:
                raw.execute("UPDATE runs SET owner_pid = ?", (pid,))
            with Store.open(path) as store:
                assert [run.state for run in store.list_runs()] == ["running"]
                assert [run.run_id for run, _ in store.runs_elsewhere()] == [run_id]
                with pytest.raises(StoreError, match="still running"):
                    store.delete_run(run_id)


def test_processes_that_write_at_once_lose_nothing(path: Path) -> None:
    with ExitStack() as stack:
        processes = [stack.enter_context(writer(path, 200)) for _ in range(3)]
        run_ids = [run_id_said_by(process) for process in processes]
        with Store.open(path) as store:
            assert sorted(run.run_id for run in _running(store)) == sorted(run_ids) == [1, 2, 3]
            for run_id in run_ids:
                expected = [run_id * 1000 + chunk for chunk in range(200) for _ in range(10)]
                assert store.load_samples(run_id).step_ns.tolist() == expected


def test_a_damaged_file_found_by_many_at_once_is_moved_aside_once(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"garbage" * 1000)
    with ExitStack() as stack:
        processes = [stack.enter_context(writer(path, 5)) for _ in range(4)]
        for process in processes:
            run_id_said_by(process)
        (kept,) = path.parent.glob("results.broken-*.sqlite")
        assert kept.read_bytes() == b"garbage" * 1000
        with Store.open(path) as store:
            assert [run.n_samples for run in _running(store)] == [50] * 4


def _running(store: Store) -> list[StoredRun]:
    return [run for run in store.list_runs() if run.state == "running"]


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace to see what SQLite syncs")
def test_a_finished_run_is_on_the_disk_and_samples_do_not_wait_for_it(path: Path, tmp_path: Path) -> None:
    log = tmp_path / "syncs.txt"
    code = f"""
import sys
from ggbench.runs.store.database import Store
{WRITER[: WRITER.index("store = ")]}
from ggbench.engines.endings import Outcome
from ggbench.runs.run import Run
from ggbench.engines.events import Memory
store = Store.open(Path(sys.argv[1]))
run_id = store.begin(head)
for chunk in range(20):
    store.append_samples(run_id, "decode/p25/b1/r0", chunk * 10, [1] * 10)
Path({str(tmp_path)!r}, "finishing").touch()
store.finish(run_id, Run(head=head, outcome=Outcome.COMPLETED, memory=Memory(buffers=())))
Path({str(tmp_path)!r}, "finished").touch()
"""
    traced = ["strace", "-f", "-y", "-o", str(log), "-e", "trace=fdatasync,fsync,openat", sys.executable, "-c", code]
    ended = subprocess.run([*traced, str(path)], capture_output=True, text=True, check=False)
    if ended.returncode and "ptrace" in ended.stderr:
        pytest.skip("strace may not trace here")
    assert not ended.returncode, ended.stderr
    lines = log.read_text().splitlines()
    begun, finishing, finished = (
        next(number for number, line in enumerate(lines) if name in line and "openat" in line)
        for name in ("results.sqlite-wal", str(tmp_path / "finishing"), str(tmp_path / "finished"))
    )
    syncs = [number for number, line in enumerate(lines) if "sync(" in line and "results.sqlite-wal" in line]
    assert [number for number in syncs if finishing < number < finished]
    assert len([number for number in syncs if begun < number < finishing]) <= 2  # of the fresh tables


def test_a_run_of_another_process_is_known_while_it_goes_on(path: Path, head: RunHead) -> None:
    with Store.open(path) as store:
        own = store.begin(head)
        with writer(path, 2) as process:
            run_id = run_id_said_by(process)
            assert [(run.run_id, pid) for run, pid in store.runs_elsewhere()] == [(run_id, process.pid)]
            store.append_samples(own, "decode/p25/b1/r0", 26, [1, 2])
            assert store.count_runs() == 2
        assert store.runs_elsewhere() == ()
        store.delete_run(run_id)
        assert store.count_runs() == 1
