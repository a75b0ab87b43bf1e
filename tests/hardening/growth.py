"""What grows with the store: time and memory of commands and of the TUI's Results, by runs."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from ggbench import paths
from ggbench.runs.store.database import Store
from ggbench.tui.stored_runs import MOST_LISTED
from ggbench.units import counted
from scripts.bench_answers import enlarge, run_once
from scripts.bench_tui import Terminal
from tests.fakes.measured import put_run, start
from tests.hardening.trials import Trials

RUNS = (50, 1000, 10_000, 100_000)
_LIMIT_S = 300.0
_RESULTS = "TUI, Results"
_N_GEN = 40
_PEER = Path(__file__).parent.parent / "data" / "peers" / "llama-bench.json"
_Taken = tuple[float, float]
"""Seconds and bytes."""


def growing_store(sizes: Sequence[int] = RUNS) -> Trials:
    """List, compare and open stores of these numbers of runs, twice, and keep the faster.

    Each is a copy of the one before with more runs.
    """
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
        "import": lambda _: _command("import", str(_PEER)),
        "doctor": lambda _: _command("doctor"),
        _RESULTS: _results_screen,
    }
    found: dict[tuple[str, int], _Taken] = {}
    for n in sizes:
        enlarge(paths.results_file(), n)
        for name, measure in commands.items():
            row.tried += 1
            try:
                found[name, n] = min(measure(n), measure(n))
            except SystemExit as error:  # the command failed, or the TUI was silent
                row.tracebacks += 1
                row.fault(f"{name} with {n:,} runs: {error}")
                continue
            if found[name, n][0] > _LIMIT_S:
                row.hangs += 1
                row.fault(f"{name} with {n:,} runs: {found[name, n][0]:.0f} s")
    row.said = [f"| | {' | '.join(f'{n:,}' for n in sizes)} |", f"| --- |{' ---: |' * len(sizes)}"]
    for name in commands:
        taken = (found.get((name, n)) for n in sizes)
        cells = ("" if each is None else f"{each[0]:.2f} s, {each[1] / 1e6:,.0f} MB" for each in taken)
        row.said.append(f"| {name} | {' | '.join(cells)} |")
    return row


def _command(*words: str) -> _Taken:
    return run_once((sys.executable, "-P", "-m", "ggbench", *words), dict(os.environ))


def _results_screen(_n: int) -> _Taken:
    """From the key until the number of all runs is drawn, and the memory then."""
    with Store.open() as store:
        n = store.count_runs()  # an import has added some
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
