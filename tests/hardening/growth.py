"""What grows with the store: time and memory of commands and of the TUI's Results, by runs and by readings."""

import contextlib
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import psutil

from ggbench import paths
from ggbench.machine.records import MachineReading
from ggbench.runs.recording import kind_of
from ggbench.runs.store.database import Store
from ggbench.tui.stored_runs import MOST_LISTED
from ggbench.units import counted
from scripts.bench_answers import enlarge, run_once
from scripts.bench_tui import Terminal
from tests.fakes.measured import SERIES, put_run, start
from tests.hardening.trials import Trials

RUNS = (50, 1000, 10_000, 100_000)
READINGS = {"an hour": 3600, "a day": 86_400, "a week": 604_800, "a month": 2_592_000}
"""One a second."""
_LIMIT_S = 300.0
"""The slowest, an export of a month with 2.6 million readings, takes some minutes on a busy machine."""
_RESULTS = "TUI, Results"
_N_GEN = 40
_PEER = Path(__file__).parent.parent / "data" / "peers" / "llama-bench.json"
_Taken = tuple[float, float]
"""Seconds and bytes."""


def growing_store(sizes: Sequence[int] = RUNS) -> Trials:
    """List, compare and open stores of these numbers of runs; each is a copy of the one before with more runs."""
    row = Trials("a store that grows")
    with Store.open() as store:
        for number in range(min(sizes)):
            model, quant = f"twin:model-{number % 4}", ("q4_k_m", "q8_0", "q2_k")[number % 3]
            put_run(store, start(model, quant), b_ms=10 + number % 7, n_gen=_N_GEN)
    commands: dict[str, Callable[[int], _Taken]] = {
        "results": lambda _: _command("results"),
        "results, all as JSON": lambda n: _command("results", "--json", "--limit", str(n)),
        "results of a model": lambda _: _command("results", "--model", "twin:model-1"),
        "compare 1 2": lambda _: _command("compare", "1", "2"),
        "compare the quants of a model": lambda _: _command("compare", "--model", "twin:model-1"),
        "import": lambda _: _command("import", str(_PEER)),
        "doctor": lambda _: _command("doctor"),
        _RESULTS: _results_screen,
    }
    return _measured(row, "runs", {f"{n:,}": n for n in sizes}, lambda n: enlarge(paths.results_file(), n), commands)


def month_of_readings(sizes: Mapping[str, int] = READINGS) -> Trials:
    """Show, export and compare a decode that took so long, with a reading of the machine and a token each second."""
    row = Trials("a month of readings")
    with Store.open() as store:
        for _ in range(2):
            put_run(store, start(), n_gen=_N_GEN)
    folder = paths.results_file().parent
    commands: dict[str, Callable[[int], _Taken]] = {
        "results": lambda _: _command("results"),
        "results show": lambda _: _command("results", "show", "2"),
        "compare 1 2": lambda _: _command("compare", "1", "2"),
        "report": lambda _: _command("report", "2", "-o", str(folder / "report.html"), "--force"),
        "export": lambda _: _command("export", "2", "--format", "json", "-o", str(folder / "export.json"), "--force"),
    }
    return _measured(row, "readings", sizes, _read_until, commands)


def _measured(
    row: Trials,
    of: str,
    sizes: Mapping[str, int],
    grow: Callable[[int], None],
    commands: Mapping[str, Callable[[int], _Taken]],
) -> Trials:
    """Run the commands at each size, twice, and keep the faster."""
    found: dict[tuple[str, str], _Taken] = {}
    for size, n in sizes.items():
        grow(n)
        for name, measure in commands.items():
            row.tried += 1
            label = f"{name} with {size} {of}"
            try:
                found[name, size] = min(measure(n), measure(n))
            except SystemExit as error:  # the command failed, or the TUI was silent
                row.tracebacks += 1
                row.fault(f"{label}: {error}")
                continue
            if found[name, size][0] > _LIMIT_S:
                row.hangs += 1
                row.fault(f"{label}: {found[name, size][0]:.0f} s")
    row.said = [f"| | {' | '.join(sizes)} |", f"| --- |{' ---: |' * len(sizes)}"]
    for name in commands:
        taken = (found.get((name, size)) for size in sizes)
        cells = ("" if each is None else f"{each[0]:.2f} s, {each[1] / 1e6:,.0f} MB" for each in taken)
        row.said.append(f"| {name} | {' | '.join(cells)} |")
    return row


def _command(*words: str) -> _Taken:
    return run_once((sys.executable, "-P", "-m", "ggbench", *words), dict(os.environ))


def _results_screen(_n: int) -> _Taken:
    """From the key until the number of all runs is drawn, and the memory then."""
    with Store.open() as store:
        n, *_ = store.count_runs()  # an import has added some
    terminal = in_terminal("tui", "--offline")
    try:
        terminal.wait_for(b"Library")
        began = time.perf_counter()
        terminal.press(b"3")
        terminal.wait_for(f"{f'{MOST_LISTED:,} of ' if n > MOST_LISTED else ''}{counted(n, 'run')}".encode())
        seconds = time.perf_counter() - began
        n_bytes = psutil.Process(terminal.process.pid).memory_info().rss
        terminal.press(b"q")
        terminal.wait_for_end()
    finally:
        terminal.process.kill()
    return seconds, n_bytes


def in_terminal(*words: str) -> Terminal:
    """Start a command in a terminal with colours, without which each character is drawn by itself."""
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    command = [sys.executable, "-P", "-m", "ggbench", *words]
    return Terminal(command, environment | {"TERM": "xterm-256color"}, 120, 40)


_SECONDS = "WITH RECURSIVE second (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM second WHERE i + 1 < :n) "


def _read_until(n: int) -> None:
    """Give run 2 a reading and a token for each of `n` seconds, as a decode stores them."""
    reading = MachineReading(at_ns=7_777_777, cpu_share=0.5, used_bytes=8 << 30, total_bytes=24 << 30, n_cpus=2)
    body = msgspec.json.encode(reading).decode()
    given = {"n": n, "at": 10**18, "s": 10**9, "kind": kind_of(MachineReading), "body": body, "series": SERIES}
    with contextlib.closing(sqlite3.connect(paths.results_file())) as raw, raw:
        for table in ("observations", "samples"):
            raw.execute(f"DELETE FROM {table} WHERE run_id = 2")
        raw.execute(
            f"INSERT INTO observations {_SECONDS} SELECT 2, i, :at + i * :s, :kind,"
            " replace(:body, '7777777', :at + i * :s) FROM second",
            given,
        )
        raw.execute(
            f"INSERT INTO samples {_SECONDS} SELECT 2, :series, 26 + i, :at + i * :s, x'00CA9A3B00000000', NULL"
            " FROM second",
            given,
        )
        raw.execute("UPDATE runs SET n_samples = :n WHERE id = 2", given)
