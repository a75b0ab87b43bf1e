"""The table behind scripts/bench_answers: whole processes, all of a round in turn, and their medians.

The large results file is a copy of the small one with its runs repeated under new numbers and times. Both lie in
folders of their own; caches are the user's, as read by a first round that does not count.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import shlex
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ggbench import paths
from ggbench.runs.store.database import Store
from ggbench.tui.stored_runs import MOST_LISTED
from scripts.bench_tui import Terminal

ROOT = Path(__file__).parents[1]
COMMANDS = (
    "--help", "models", "plan qwen1.5-0.5b q4_k_m", "plan qwen1.5-0.5b", "pick qwen2.5-7b",
    "pick --gpu rtx-3060 --ram 32GiB", "doctor", "results", "results --model {model}", "results --model nobody",
    "compare {} {}", "import {exported}",
)  # fmt: skip
"""`{}` stands for the newest decodes, `model` for that of the newest one, `exported` for a file of it."""
_BASE = ("import numpy, llama_cpp", (sys.executable, "-c", "import numpy, llama_cpp.llama_cpp"))
_EMPTY = ("pass", (sys.executable, "-c", "pass"))


def main() -> int:
    """Time the commands and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commands", nargs="*", default=COMMANDS, help="as after `ggbench`")
    parser.add_argument(
        "--store", type=Path, default=paths.results_file(), help="the small results file; only copied"
    )
    parser.add_argument("--runs", type=int, default=20_000, help="runs of the large one")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--against", metavar="COMMIT", help="also time the commands of this commit")
    parser.add_argument(
        "--tui", action="store_true", help="only time keys on the TUI's Results, with the large file"
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ggbench-bench-answers-") as name:
        folder = Path(name)
        trees = {"": ROOT} | ({asked.against: checked_out(asked.against, folder)} if asked.against else {})
        homes = {}
        for tree, size in [(tree, size) for tree in trees for size in ("small", "large")]:
            homes[tree, size] = folder / f"{tree or 'here'}-{size}"
            _copy(
                asked.store,
                homes[tree, size] / "ggbench" / "results.sqlite",
                asked.runs if size == "large" else 0,
            )
        with Store.open(homes["", "small"] / "ggbench" / "results.sqlite") as store:
            n_runs = store.count_runs()
            decodes = [each for each in store.list_runs() if (each.kind, each.state) == ("decode", "completed")]
            newest = decodes[:2]
        compiled = {
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
        }  # as installed
        base = {**os.environ, **compiled}
        if asked.tui:
            _time_keys({**base, "XDG_DATA_HOME": str(homes["", "large"])})
            return 0
        exported, model = folder / "run.json", shlex.quote(newest[0].subject.model)
        export = (
            "-m",
            "ggbench",
            "export",
            str(newest[0].run_id),
            "--format",
            "json",
            "-o",
            str(exported),
            "-q",
        )
        run_once((sys.executable, "-P", *export), {**base, "XDG_DATA_HOME": str(homes["", "small"])})
        jobs: dict[tuple[str, str, str], tuple[tuple[str, ...], dict[str, str]]] = {
            (text, "", ""): (words, base) for text, words in (_EMPTY, _BASE)
        }
        numbers = [run.run_id for run in newest]
        for command in asked.commands:
            line = command.format(*numbers, model=model, exported=exported)
            words = (sys.executable, "-P", "-m", "ggbench", *shlex.split(line))
            for (tree, size), home in homes.items():
                environment = {**base, "XDG_DATA_HOME": str(home), "PYTHONPATH": str(trees[tree])}
                jobs[command, tree, size] = words, environment
        seconds: dict[tuple[str, str, str], list[float]] = {job: [] for job in jobs}
        computed: dict[tuple[str, str, str], list[float]] = {job: [] for job in jobs}
        peaks: dict[tuple[str, str, str], list[int]] = {job: [] for job in jobs}
        for number in range(asked.rounds + 1):
            for job in jobs if number % 2 else reversed(jobs):
                before_s = _children_s()
                taken_s, peak_bytes = run_once(*jobs[job])
                if number:
                    seconds[job].append(taken_s)
                    computed[job].append(_children_s() - before_s)
                    peaks[job].append(peak_bytes)
    _print(seconds, computed, peaks, tuple(trees), asked.commands, (n_runs, asked.runs))
    return 0


def enlarge(path: Path, n_runs: int) -> None:
    """Repeat the runs of a results file, with samples and observations, until it has at least `n_runs`.

    Each copy starts a minute later than the copy before.
    """
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        (n_own, last) = connection.execute(
            "SELECT count(*), max(id) FROM runs WHERE state <> 'running'"
        ).fetchone()
        columns = _columns(connection, "runs")
        for turn in range(1, -(-n_runs // n_own)):
            changed = {
                "id": f"id + {turn * last}",
                "started_at": f"strftime('%Y-%m-%dT%H:%M:%S+00:00', started_at, '+{turn} minutes')",
            }
            of = ", ".join(changed.get(name, name) for name in columns)
            own = f"id <= {last} AND state <> 'running'"
            connection.execute(f"INSERT INTO runs ({', '.join(columns)}) SELECT {of} FROM runs WHERE {own}")
            for table in ("samples", "observations"):
                names = _columns(connection, table)
                of = ", ".join(f"run_id + {turn * last}" if name == "run_id" else name for name in names)
                connection.execute(
                    f"INSERT INTO {table} ({', '.join(names)}) SELECT {of} FROM {table} WHERE run_id IN"
                    f" (SELECT id FROM runs WHERE {own})"
                )


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


def _copy(store: Path, target: Path, n_runs: int) -> None:
    target.parent.mkdir(parents=True)
    with (
        contextlib.closing(sqlite3.connect(store)) as source,
        contextlib.closing(sqlite3.connect(target)) as copy,
    ):
        source.backup(copy)
    if n_runs:
        enlarge(target, n_runs)


def checked_out(commit: str, folder: Path) -> Path:
    tree = folder / "tree"
    tree.mkdir()
    command = ["git", "archive", commit, "ggbench", "models.toml"]
    archive = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(tree)], input=archive, check=True)
    return tree


def run_once(words: Sequence[str], environment: dict[str, str]) -> tuple[float, int]:
    """Return the seconds and the peak memory of a process."""
    begun = time.perf_counter()
    with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        error = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 3):
        raise SystemExit(f"{shlex.join(words)}: {error.decode()}")
    return time.perf_counter() - begun, _peak_bytes(usage)


def _children_s() -> float:
    """Return the CPU time of all processes so far."""
    return sum(os.times()[2:4])


def _peak_bytes(usage: resource.struct_rusage) -> int:
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _time_keys(environment: dict[str, str]) -> None:
    """Print how long keys take on the Results screen, from the key to the drawing of what it changes."""
    with Store.open(Path(environment["XDG_DATA_HOME"]) / "ggbench" / "results.sqlite") as store:
        n_runs = store.count_runs()
    count, cursor = f"of {n_runs:,} runs", "❯"
    # the blinking cursor is on the first letter of the placeholder
    keys = [
        ("j", "j", cursor, 20), ("page down", "\x1b[6~", cursor, 20), ("G", "G", cursor, 1), ("g", "g", cursor, 1),
        ("/", "/", "ilter by", 1), *((f"letter {letter}", letter, count, 1) for letter in "q4_k_m decode"),
    ]  # fmt: skip
    terminal = Terminal(
        [sys.executable, "-P", "-m", "ggbench", "tui"], environment | {"TERM": "xterm"}, 120, 40
    )
    terminal.wait_for(b"Library")
    begun = time.perf_counter()
    terminal.press(b"3")
    terminal.wait_for(count.encode())
    first_s = time.perf_counter() - begun
    terminal.wait_for(f"{MOST_LISTED:,} {count}".encode())
    print(f"Results of {n_runs:,} runs: the first after {first_s:.2f} s, all to list after"
          f" {time.perf_counter() - begun:.2f} s\n\n| key | median ms | longest |\n|---|---:|---:|")  # fmt: skip
    for name, key, drawn, times in keys:
        taken_ms = []
        for _ in range(times):
            begun = time.perf_counter()
            terminal.press(key.encode())
            terminal.wait_for(drawn.encode())
            taken_ms.append(1e3 * (time.perf_counter() - begun))
        print(f"| `{name}` | {statistics.median(taken_ms):.0f} | {max(taken_ms):.0f} |")
    terminal.press(b"\x1b")
    terminal.wait_for(count.encode())
    terminal.press(b"q")
    terminal.wait_for_end()


def _print(
    seconds: dict[tuple[str, str, str], list[float]],
    computed: dict[tuple[str, str, str], list[float]],
    peaks: dict[tuple[str, str, str], list[int]],
    trees: Sequence[str],
    commands: Sequence[str],
    sizes: tuple[int, int],
) -> None:
    base_s = statistics.median(seconds[_BASE[0], "", ""])
    for name in (_EMPTY[0], _BASE[0]):
        print(f"`python -c '{name}'`: {statistics.median(seconds[name, '', '']):.3f} s")
    print(
        "\nSeconds, in brackets the ratio to importing llama_cpp; seconds of CPU and MB of a process's own peak.\n"
    )
    print("| command | commit |", " | ".join(f"{n:,} runs" for n in sizes), "| large / small | CPU s | MB |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for command, tree in [(command, tree) for command in commands for tree in trees]:
        small_s, large_s = (statistics.median(seconds[command, tree, size]) for size in ("small", "large"))
        mb = " → ".join(
            f"{statistics.median(peaks[command, tree, size]) / 1e6:.0f}" for size in ("small", "large")
        )
        cpu = " → ".join(
            f"{statistics.median(computed[command, tree, size]):.2f}" for size in ("small", "large")
        )
        each = " | ".join(f"{taken_s:.2f} ({taken_s / base_s:.1f})" for taken_s in (small_s, large_s))
        print(f"| `{command}` | {tree or 'here'} | {each} | {large_s / small_s:.2f} | {cpu} | {mb} |")


if __name__ == "__main__":
    sys.exit(main())
