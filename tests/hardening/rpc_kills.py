"""Kills of an RPC server at random moments of a run that computes on it."""

import contextlib
import json
import random
import subprocess
import time
from pathlib import Path

from ggbench.units import MIB
from tests.fakes.rpc_server import RpcServer, free_port, serving
from tests.hardening.commands import started
from tests.hardening.trials import Trials

_LONG, _SHORT = "100000", "8"
"""Tokens of the run that is interrupted, and of the next."""
_LIMIT_S = 60.0
_MEMORY_BYTES = 512 * MIB


def kills_of_rpc_servers(n: int, draw: random.Random, model: Path, within_s: float = 5.0) -> Trials:
    """Decode over two servers and kill one: the run is kept as failed and names it, and the next one completes."""
    row = Trials("kills of an RPC server in use")
    for number in range(n):
        after_s = draw.uniform(0.5, within_s)
        ports, victim = (free_port(), free_port()), number % 2
        label = f"server of device {victim} after {after_s:.2f} s"
        row.tried += 1
        with serving(_MEMORY_BYTES, ports[0]) as one, serving(_MEMORY_BYTES, ports[1]) as other:
            servers = one, other
            with started(row, label, _decode(model, servers, _LONG), start_new_session=True) as process:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=after_s)
                killed = servers[victim]
                killed.process.kill()
                out, err = _rest(row, label, process)
                _check(row, label, process.returncode, out, err, killed.address)
            with serving(_MEMORY_BYTES, ports[victim]) as again:
                _complete(row, label, _decode(model, (servers[0], again) if victim else (again, other), _SHORT))
    return row


def _decode(model: Path, servers: tuple[RpcServer, RpcServer], n_gen: str) -> list[str]:
    addresses = ",".join(server.address for server in servers)
    return ["decode", str(model), "--rpc", addresses, "-n", n_gen, "--json"]


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
        if code != 4 or address not in err:  # not killed before the run began
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
    with started(row, label, words) as process:
        out, err = _rest(row, label, process)
        if process.returncode:
            row.fault(f"{label}: the next run ended with {process.returncode}: {err[-200:] or out[-200:]}")
