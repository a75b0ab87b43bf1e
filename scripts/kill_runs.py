"""Kill ggbench and its workers at random moments; exit code 1 where an orphan, a damaged store or a lost run is left.

Half of the kills hit `ggbench decode` itself, half its worker. After each the worker has to be gone within two seconds,
the store has to pass SQLite's integrity check, and the run has to be shown as far as it came.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

_GONE_WITHIN_S = 2.0


def main() -> int:
    """Kill as often as asked, and print what each kill left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--within", type=float, default=6.0, metavar="SECONDS", help="of the start of each decode")
    asked = parser.parse_args()
    draw = random.Random(asked.seed)
    faults = 0
    with tempfile.TemporaryDirectory(prefix="ggbench-kill-runs-") as folder:
        environment = {**os.environ, "XDG_DATA_HOME": folder}
        for number in range(asked.kills):
            hits_worker = number % 2 == 1
            seconds = draw.uniform(0.3, asked.within)
            found = _kill_once(environment, hits_worker=hits_worker, after_s=seconds)
            problems = [*found, *_problems_of_store(Path(folder) / "ggbench" / "results.sqlite", environment)]
            faults += len(problems)
            victim = "worker" if hits_worker else "ggbench"
            print(f"{number + 1:3} {victim} killed after {seconds:.2f} s: {'; '.join(problems) or 'ok'}", flush=True)
        runs = json.loads(_ggbench(environment, "results", "--json"))["rows"]
    states = sorted({run["state"] for run in runs})
    print(f"{len(runs)} runs kept ({', '.join(states)}), {faults} faults")
    return 1 if faults else 0


def _kill_once(environment: dict[str, str], *, hits_worker: bool, after_s: float) -> list[str]:
    """Start a long decode, kill it or its worker after a while, and say what went wrong."""
    command = [sys.executable, "-P", "-m", "ggbench", "decode", "synth:qwen1.5-0.5b", "q4_k_m", "-n", "5000", "-q"]
    parent = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(after_s)
    workers = psutil.Process(parent.pid).children()
    victims = workers if hits_worker else [psutil.Process(parent.pid)]
    for victim in victims:
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.kill()
    if hits_worker and not workers:
        parent.kill()  # killed before it had one
    problems = []
    try:
        parent.wait(timeout=30)
    except subprocess.TimeoutExpired:
        problems.append("ggbench did not end")
        parent.kill()
        parent.wait()
    _, alive = psutil.wait_procs(workers, timeout=_GONE_WITHIN_S)
    if alive:
        problems.append(f"{len(alive)} orphans")
        for orphan in alive:
            orphan.kill()
    return problems


def _problems_of_store(path: Path, environment: dict[str, str]) -> list[str]:
    if not path.exists():
        return []
    with contextlib.closing(sqlite3.connect(path)) as connection:
        answer = connection.execute("PRAGMA integrity_check").fetchone()[0]
    problems = [] if answer == "ok" else [f"integrity check: {answer}"]
    runs = json.loads(_ggbench(environment, "results", "--limit", "1", "--json"))["rows"]
    for run in runs:
        shown = subprocess.run(
            [sys.executable, "-P", "-m", "ggbench", "results", "show", str(run["run_id"]), "--json"],
            env=environment,
            capture_output=True,
            text=True,
        )
        if shown.returncode:
            problems.append(f"run {run['run_id']} cannot be shown: {shown.stderr.strip()}")
        elif run["state"] == "running":
            problems.append(f"run {run['run_id']} still says running")
    return problems


def _ggbench(environment: dict[str, str], *words: str) -> str:
    command = [sys.executable, "-P", "-m", "ggbench", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
