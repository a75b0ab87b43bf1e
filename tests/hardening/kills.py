"""Kills and signals at random moments, of a command and of its worker."""

import contextlib
import hashlib
import itertools
import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from ggbench import paths
from ggbench.errors import ExitCode, GgbenchError
from ggbench.files import PART_SUFFIX, remove_left
from ggbench.gguf_file.header import read_model_file
from tests.fakes.llama_server import install
from tests.hardening.commands import started, stopped_commands, workers_of
from tests.hardening.served import served_hub
from tests.hardening.trials import Trials, ggbench

_WAYS = ("kill ggbench", "kill its worker", "SIGTERM", "SIGINT", "SIGHUP")
_SERVER_WAYS = ("kill ggbench", "kill its keeper", "kill its llama-server", "SIGTERM", "SIGINT", "SIGHUP")
_MOMENTS = {"starts": (2000, 0.5), "streams": (2000, 1.0), "ends": (100, 0.3)}
"""Tokens to decode, and within how many seconds of that moment to stop it."""
_POLL_S = 0.01
_HANDLED_AFTER_S = 1.0
"""Before, Python itself may still be starting and ends by the signal."""
_LIMIT_S = 60.0
"""For a command that is stopped to end, and for one that goes on with another worker to store something more."""
_ENDED = re.compile(r"^(run \d+\b|saved |\d+ (twin of|runs? imported))", re.MULTILINE)
"""What a command says last: after it Python itself exits, and ends by a signal."""
_REPO = "org/pulled-GGUF"
_Wait = Callable[[subprocess.Popen[str]], None]


def kills_of_measurements(
    n: int, draw: random.Random, model: Path, within_s: float = 5.0, trained: Path | None = None, only: str = ""
) -> Trials:
    """Every measuring command in turn, or one; runs stay, and each is shown as far as it came."""
    row = Trials(f"kills and signals while measuring{only and f' a {only}'}")
    commands = stopped_commands(model, trained)
    ways = itertools.cycle(itertools.product(_WAYS, [(only, commands[only])] if only else commands.items()))
    for way, (name, words) in itertools.islice(ways, n):
        after_s = draw.uniform(0.2, within_s)
        label = f"{name}, {way} after {after_s:.2f} s"
        before = samples_by_run()
        _stop(row, label, way, words, _seconds(after_s), is_handled=after_s > _HANDLED_AFTER_S)
        check_store(row, label, before)
    return row


def kills_of_servers(n: int, draw: random.Random, model: Path, folder: Path) -> Trials:
    """A decode by a llama-server; one of the two is stopped while the server starts, streams or ends: nothing stays.

    LLAMA_SERVER names the program; without it one that loads no model is taken.
    """
    row = Trials("kills and signals with a llama-server")
    folder.mkdir(parents=True, exist_ok=True)
    real = os.environ.get("LLAMA_SERVER") or install(folder)
    program = folder / "named"  # the alias names every process of it
    program.write_text(f"#!/bin/sh\n'{real}' --alias '{program}' \"$@\"\nexit $?\n")  # a tree of processes
    program.chmod(0o755)
    words = ["decode", str(model), "-t", "1", "--bandwidth", "20GB/s", "--engine", f"llama-server={program}", "-n"]
    for way, (moment, (n_gen, within_s)) in itertools.islice(
        itertools.cycle(itertools.product(_SERVER_WAYS, _MOMENTS.items())), n
    ):
        after_s, before = draw.uniform(0, within_s), samples_by_run()
        label = f"{way} {after_s:.2f} s after it {moment}"
        _stop(row, label, way, [*words, str(n_gen)], _server_that(moment, n_gen, before, after_s))
        check_store(row, label, before)
    return row


def _server_that(moment: str, n_gen: int, before: dict[int, int], after_s: float) -> _Wait:
    """Wait until the server of a command starts, its tokens are stored, or all of them are; then a while longer."""

    def is_there(process: subprocess.Popen[str]) -> bool:
        if moment == "starts":
            return any(_is_of(worker, "llama-server") for worker in workers_of(process))
        n_samples = sum(samples_by_run().values()) - sum(before.values())
        return n_samples >= (n_gen if moment == "ends" else 1)

    def wait(process: subprocess.Popen[str]) -> None:
        until = time.monotonic() + _LIMIT_S
        while process.poll() is None and not is_there(process) and time.monotonic() < until:
            time.sleep(_POLL_S)
        _seconds(after_s)(process)

    return wait


def _seconds(after_s: float) -> _Wait:
    def wait(process: subprocess.Popen[str]) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=after_s)

    return wait


def _is_of(process: psutil.Process, whose: str) -> bool:
    """Whether a process below ggbench is its keeper, or the llama-server itself; any is a worker."""
    with contextlib.suppress(psutil.Error):
        words = process.cmdline()
        is_keeper = "ggbench.engines.http.keeper" in words
        return whose == "worker" or (is_keeper if whose == "keeper" else "--alias" in words and "--port" in words)
    return False


def kills_of_writers(n: int, draw: random.Random, folder: Path) -> Trials:
    """Every command that writes files: what has its final name is whole, and what was there before is there."""
    row = Trials("kills and signals while writing files")
    folder.mkdir(parents=True, exist_ok=True)
    old = b"what the user had"
    content = draw.randbytes(24 << 20)
    with served_hub() as (hub, _):
        hub.add_repo(_REPO, {"pulled-q8_0.gguf": content})
        hub.bytes_per_s = 20e6
        for number in range(n):
            target = folder / f"out-{number}"
            words, is_whole = (
                (["twin", "qwen1.5-0.5b", "q4_0", "--layers", "2", "-o", str(target)], _is_gguf),
                (["report", "1", "-o", str(target.with_suffix(".html")), "--force"], _is_page),
                (["export", "1", "--format", "json", "-o", str(target.with_suffix(".json")), "--force"], _is_json),
                (["pull", f"hf:{_REPO}", "q8_0"], _is_nothing),
                (["import", str(Path(__file__).parent.parent / "data" / "peers" / "llama-bench.json")], _is_json),
            )[number % 5]
            if "--force" in words:
                Path(words[-2]).write_bytes(old)
            after_s = draw.uniform(0.1, 2.0)
            way = draw.choice([way for way in _WAYS if "worker" not in way])
            label = f"{words[0]}, {way} after {after_s:.2f} s"
            before = samples_by_run()
            _stop(row, label, way, words, _seconds(after_s), is_handled=after_s > _HANDLED_AFTER_S)
            check_store(row, label, before)
            _check_files(row, label, folder, {old, content}, is_whole)
            _check_left(row, label, folder)
            if "--force" in words and not Path(words[-2]).exists():
                row.lost_bytes += len(old)
                row.fault(f"{label}: the file that it was to replace is gone")
            for path in folder.rglob("*"):
                if path.is_file():
                    path.unlink()
        for blob in Path(os.environ["HF_HOME"]).glob("hub/*/blobs/*"):
            if not blob.name.endswith(".incomplete") and hashlib.sha256(blob.read_bytes()).hexdigest() != blob.name:
                row.unverified_bytes += blob.stat().st_size
                row.fault(f"{blob.name} has a name that is not its hash")
    return row


def _check_left(row: Trials, label: str, folder: Path) -> None:
    """Have the next command that writes there remove what the kill left."""
    if any(folder.glob(f".*{PART_SUFFIX}")):
        remove_left.cache_clear()  # as in a new process
        ggbench("export", "1", "-o", str(folder / "next.json"))
        if left := list(folder.glob(f".*{PART_SUFFIX}")):
            row.fault(f"{label}: {left[0].name} stayed")


def _check_files(row: Trials, label: str, folder: Path, known: set[bytes], is_whole: Callable[[Path], bool]) -> None:
    for path in folder.rglob("*"):
        if path.is_file() and not path.parent.name.endswith(PART_SUFFIX):
            held = path.read_bytes()
            if held not in known and not is_whole(path):
                row.unverified_bytes += len(held)
                row.fault(f"{label}: {path.name} is not whole")


def _stop(row: Trials, label: str, way: str, words: list[str], wait: _Wait, *, is_handled: bool = True) -> None:
    """Start a command, wait, and stop it or what it started; before a signal `is_handled`, Python itself ends by it."""
    row.tried += 1
    with started(row, label, words, start_new_session=True) as process:
        wait(process)
        workers, whose = workers_of(process), way.partition("its ")[2]
        is_over = process.poll() is not None
        victims = [worker for worker in workers if whose and _is_of(worker, whose)]
        if not victims and not is_over and whose in ("", "worker"):
            victims = [psutil.Process(process.pid)]
        for victim in victims:
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.send_signal(signal.SIGKILL if way.startswith("kill") else getattr(signal, way))
        said = rest_of(process, may_go_on=bool(whose))
        if said is None:
            row.hangs += 1
            row.fault(f"{label}: it did not end")
            return
        out, err = said
        has_ended = bool(_ENDED.search(f"{out}\n{err}"))
        if process.returncode == ExitCode.USAGE:
            row.fault(f"{label}: it was refused, {err[-200:]}")
        is_signalled = way.startswith("SIG") and not (is_over or has_ended)
        if is_signalled and process.returncode not in (0, 130) and is_handled:
            row.tracebacks += 1
            row.fault(f"{label}: exit code {process.returncode}, {err[-200:]}")
        elif "Traceback" in err and is_handled and not has_ended:
            row.tracebacks += 1
            row.fault(f"{label}: {err[-300:]}")


def rest_of(process: subprocess.Popen[str], *, may_go_on: bool, limit_s: float = _LIMIT_S) -> tuple[str, str] | None:
    """Return what a command writes to stdout and stderr until it ends, and None where it hangs.

    One that may go on has as long as it stores something: on a machine with a load of 9, threads that wait for each
    other decoded less than one token/s.
    """
    stored = _n_stored()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=limit_s)
        before, stored = stored, _n_stored()
        if not may_go_on or stored == before:
            return None


def _n_stored() -> int:
    path = paths.results_file()
    if not path.exists():
        return 0
    with contextlib.closing(sqlite3.connect(path)) as raw:
        (n_samples,) = raw.execute("SELECT count(*) + coalesce(sum(n_samples), 0) FROM runs").fetchone()
        (n_others,) = raw.execute("SELECT count(*) FROM observations WHERE kind <> 'machine_reading'").fetchone()
    return int(n_samples) + int(n_others)


def samples_by_run() -> dict[int, int]:
    path = paths.results_file()
    if not path.exists():
        return {}
    with contextlib.closing(sqlite3.connect(path)) as raw:
        return dict(raw.execute("SELECT id, n_samples FROM runs"))


def check_store(row: Trials, label: str, before: dict[int, int]) -> None:
    path = paths.results_file()
    if not path.exists():
        return
    with contextlib.closing(sqlite3.connect(path)) as raw:
        answer = raw.execute("PRAGMA integrity_check").fetchone()[0]
    if answer != "ok":
        row.lost_bytes += path.stat().st_size
        row.fault(f"{label}: the store is damaged, {answer}")
    after = samples_by_run()
    if lost := [run_id for run_id, n in before.items() if after.get(run_id, -1) < n]:
        row.lost_bytes += 16 * sum(before[run_id] for run_id in lost)
        row.fault(f"{label}: runs {lost} lost samples")
    for run in json.loads(ggbench("results", "--limit", "2", "--json").out)["rows"]:
        shown = ggbench("results", "show", str(run["run_id"]), "--json")
        if shown.code or run["state"] == "running":
            row.lost_bytes += 1
            row.fault(f"{label}: run {run['run_id']} is {run['state']}, {shown.err[-200:]}")


def _is_gguf(path: Path) -> bool:
    try:
        return read_model_file(path).missing_bytes == 0
    except GgbenchError:
        return False


def _is_nothing(_path: Path) -> bool:
    return False


def _is_page(path: Path) -> bool:
    return path.read_text(encoding="utf-8").rstrip().endswith("</html>")


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return True
