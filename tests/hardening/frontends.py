"""Two TUIs and the command line on one store for as long as asked: what one stores, no other loses."""

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from scripts.bench_tui import Terminal
from tests.hardening.commands import count_orphans, started
from tests.hardening.growth import in_terminal
from tests.hardening.kills import check_store, samples_by_run
from tests.hardening.trials import Trials

_KEYS = (*b"123jk vr?\t", b"\x1b[A", b"\x1b[B", b"\x1b", b"\r", b"c")
"""They move, mark, sort, filter, open, compare and stop; none deletes, downloads or writes a file."""
_START, _ASKED = (b"1", b"b", b"60"), b"what to measure"
_BETWEEN_KEYS_S = 0.2
_SETTLES_S = 3.0


def two_front_ends(seconds: float, draw: random.Random, folder: Path, model: Path) -> Trials:
    """Measure and browse by random keys in two TUIs, while commands measure, list, import, export and remove."""
    row = Trials("two TUIs and the command line on one store")
    folder.mkdir(parents=True, exist_ok=True)
    tuis = [in_terminal("tui", "--offline", str(model)) for _ in range(2)]
    try:
        for tui in tuis:
            tui.wait_for(model.stem[:4].encode())
        first_bytes = [_resident(tui) for tui in tuis]
        kept: dict[int, int] = {}
        until, n_keys = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            n_keys += _press(row, tuis, draw)
            _command(row, draw, folder, model, kept)
        row.said = [
            f"{n_keys} keys, {len(samples_by_run())} runs, {len(kept)} of them by commands",
            *(f"a TUI of {before / 1e6:.0f} MB took {_resident(tui) / 1e6:.0f} MB at the end"
              for tui, before in zip(tuis, first_bytes, strict=True)),
        ]  # fmt: skip
        for tui in tuis:
            _end(row, tui)
    except (SystemExit, OSError, psutil.NoSuchProcess, subprocess.TimeoutExpired) as error:
        row.hangs += 1
        row.fault(f"a TUI or a command ended, or was silent: {error}")
    finally:
        for tui in tuis:
            tui.process.kill()
    check_store(row, "two TUIs and commands", kept)
    return row


def _press(row: Trials, tuis: Sequence[Terminal], draw: random.Random) -> int:
    """Press some keys in both, and in one case of four start a run in the first; return how many were pressed."""
    n_keys = draw.randrange(3, 20)
    for _ in range(n_keys):
        for tui in tuis:
            key = draw.choice(_KEYS)
            tui.press(bytes([key]) if isinstance(key, int) else key)
            tui.drawn_within(_BETWEEN_KEYS_S)
    for tui in tuis:
        tui.press(b"\x1b")
        if b"Traceback" in tui.drawn_within(_BETWEEN_KEYS_S):
            row.tracebacks += 1
            row.fault("a TUI drew a traceback")
    if not draw.randrange(4):
        drawn = b""
        for key in _START:
            tuis[0].press(key)
            drawn += tuis[0].drawn_within(_SETTLES_S)
        tuis[0].press(b"\r" if _ASKED in drawn else b"\x1b")
    return 2 * n_keys


def _command(row: Trials, draw: random.Random, folder: Path, model: Path, kept: dict[int, int]) -> None:
    """Run one command; `kept` has the runs that were made by one and not removed, with their samples."""
    peer = Path(__file__).parent.parent / "data" / "peers" / "llama-bench.json"
    newest = str(max(kept, default=1))
    words_of_decode = ["decode", str(model), "-n", "40", "--bandwidth", "20GB/s", "--json"]
    words = draw.choice(
        (
            words_of_decode,
            ["results", "--json"], ["results", "show", newest], ["compare", *map(str, sorted(kept)[-2:])],
            ["import", str(peer)], ["export", newest, "--format", "json", "-o", str(folder / "e.json"), "--force"],
            ["results", "rm", newest, "--yes"],
        )
    )  # fmt: skip
    if (not kept and newest in words[1:]) or (words[0] == "compare" and len(kept) < 2):
        words = words_of_decode
    with started(row, words[0], words) as process:
        row.tried += 1
        out, err = process.communicate(timeout=300)
    row.judge(" ".join(words[:2]), process.returncode, out, err)
    if process.returncode:
        row.fault(f"{' '.join(words[:2])}: exit code {process.returncode}, {err[-200:]}")
    elif words[0] == "decode":
        kept[json.loads(out)["run_id"]] = 40
    elif words[1:2] == ["rm"]:
        del kept[int(newest)]


def _resident(tui: Terminal) -> int:
    return int(psutil.Process(tui.process.pid).memory_info().rss)


def _end(row: Trials, tui: Terminal) -> None:
    """End a TUI as `kill` does, and look for what it leaves."""
    workers = psutil.Process(tui.process.pid).children(recursive=True)
    os.kill(tui.process.pid, signal.SIGTERM)
    tui.wait_for_end()
    count_orphans(row, "a TUI", workers)
    row.tried += 1
    if tui.process.returncode not in (0, 130):
        row.tracebacks += 1
        row.fault(f"a TUI: exit code {tui.process.returncode}")
