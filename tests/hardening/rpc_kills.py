"""Kills of an RPC server at random moments of a run that computes on it."""

import contextlib
import json
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.fakes.rpc_server import free_port
from tests.hardening.commands import count_orphans, started, workers_of
from tests.hardening.trials import Trials

_LONG, _SHORT = "100000", "8"
"""Tokens of the run that is interrupted, and of the next."""
_LIMIT_S = 60.0
_MEMORY = "512MiB"


@dataclass(frozen=True)
class _Server:
    address: str
    process: subprocess.Popen[str]
    child: psutil.Process
    """llama.cpp's server itself."""


def kills_of_rpc_servers(n: int, draw: random.Random, model: Path, within_s: float = 5.0) -> Trials:
    """Decode over two servers and kill one: the run is kept as failed and names it, and the next one completes."""
    row = Trials("kills of an RPC server in use")
    for number in range(n):
        after_s = draw.uniform(0.5, within_s)
        ports, victim = (free_port(), free_port()), number % 2
        whom = ("its child", "cluster serve")[number // 2 % 2]
        label = f"{whom} of device {victim} after {after_s:.2f} s"
        row.tried += 1
        with _serving(ports[0]) as one, _serving(ports[1]) as other:
            servers = one, other
            words = _decode(model, servers, _LONG)
            with started(words, start_new_session=True) as process:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=after_s)
                workers = workers_of(process)
                killed = servers[victim]
                pid = killed.child.pid if whom == "its child" else killed.process.pid
                psutil.Process(pid).send_signal(signal.SIGKILL)
                out, err = _rest(row, label, process)
                count_orphans(row, label, [*workers, killed.child])
                _check(row, label, process.returncode, out, err, killed.address)
            if whom == "its child":
                killed.process.wait(timeout=_LIMIT_S)
            with _serving(ports[victim]) as again:
                _complete(row, label, _decode(model, (servers[0], again) if victim else (again, other), _SHORT))
    return row


def _decode(model: Path, servers: tuple[_Server, _Server], n_gen: str) -> list[str]:
    addresses = ",".join(server.address for server in servers)
    return ["decode", str(model), "--rpc", addresses, "-n", n_gen, "--json"]


@contextlib.contextmanager
def _serving(port: int) -> Iterator[_Server]:
    words = ["cluster", "serve", "--port", str(port), "-t", "1", "--memory", _MEMORY, "--json"]
    with started(words) as process:
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or lines[-1] != "}\n":
            lines.append(process.stdout.readline())
            if not lines[-1]:
                raise RuntimeError(process.communicate()[1])
        document = json.loads("".join(lines))
        yield _Server(document["server"], process, psutil.Process(document["pid"]))


def _rest(row: Trials, label: str, process: subprocess.Popen[str]) -> tuple[str, str]:
    began = time.monotonic()
    try:
        return process.communicate(timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        row.hangs += 1
        row.fault(f"{label}: the run did not end within {time.monotonic() - began:.0f} s")
        process.kill()
        return process.communicate()


def _check(row: Trials, label: str, code: int | None, out: str, err: str, address: str) -> None:
    row.judge(label, code or 0, out, err)
    try:
        document = json.loads(out)
    except ValueError:
        row.lost_bytes += 1
        row.fault(f"{label}: exit code {code} and no run: {err[-200:]}")
        return
    run = document.get("rows", [document])[0]
    if (code, run["outcome"]) != (6, "failed") or address not in (run["reason"] or ""):
        row.fault(f"{label}: exit code {code}, {run['outcome']}, {run['reason']}")
    if not run.get("run_id"):
        row.lost_bytes += 1
        row.fault(f"{label}: the run was not kept")


def _complete(row: Trials, label: str, words: list[str]) -> None:
    with started(words) as process:
        out, err = _rest(row, label, process)
        if process.returncode:
            row.fault(f"{label}: the next run ended with {process.returncode}: {err[-200:] or out[-200:]}")
