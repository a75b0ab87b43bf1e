"""The comparison behind scripts/bench_tui; exit code 1 where the median ratio is above the aim.

Both ways decode the same file with the default threads, in turn, each into a results file of its own folder, and the
latencies are read from there. The TUI runs in a terminal of its own and is driven by keys, as a person would; this
process takes in what it draws, as a terminal would. On a machine that others load, only the ratio says something.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from ggbench.models.reference import parse_model
from ggbench.models.sources import ARTICLE_QUANTS
from ggbench.models.targets import materialize, resolve_one
from ggbench.runs.store.database import Store
from ggbench.runs.stored import read_run
from ggbench.runs.summary import QuantSummary
from ggbench.stats.decode_timing import LatencySummary

MODEL = "twin:qwen1.5-0.5b"
AIM = 1.03
_LONGEST_SILENCE_S = 120
_ENTER, _DOWN, _START, _QUIT = b"\r", b"\x1b[B", b"b", b"q"
_ASKED, _DECODING, _DONE = b"Start (enter)", b"decoding", "✓ a".encode()
"""What is drawn in the dialog, in a run, at its end."""


def main() -> int:
    """Run the pairs and print them with their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("quant", nargs="?", choices=ARTICLE_QUANTS, default="q4_k_m", help=f"of {MODEL}")
    parser.add_argument("-n", "--n-gen", type=int, default=400)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--size", default="120x40", help="columns x rows of the terminal")
    asked = parser.parse_args()
    columns, rows = map(int, asked.size.split("x"))
    path = materialize(resolve_one(parse_model(MODEL, asked.quant))).paths[0]
    ratios: list[float] = []
    shares: list[float] = []
    print(f"{path.name}, {asked.n_gen} tokens, {columns} x {rows}; ms a token, and the share of a core the TUI took")
    print(f"{'pair':>4} {'quiet p50':>10} {'p99':>8} {'TUI p50':>10} {'p99':>8} {'share':>7} {'ratio':>7}")
    with tempfile.TemporaryDirectory(prefix="ggbench-bench-tui-") as folder:
        home = _Home(Path(folder), path)
        for number in range(asked.pairs):
            ways: list[Callable[[], None]] = [
                lambda: home.decode(asked.n_gen),
                lambda: shares.append(home.decode_in_tui(asked.quant, asked.n_gen, columns, rows)),
            ]
            order = (0, 1) if number % 2 == 0 else (1, 0)
            latencies: dict[int, LatencySummary] = {}
            for way in order:
                ways[way]()
                latencies[way] = home.latency(asked.quant)
            quiet, tui = latencies[0], latencies[1]
            assert quiet.p50_ms and tui.p50_ms
            ratios.append(tui.p50_ms / quiet.p50_ms)
            print(
                f"{number + 1:4} {quiet.p50_ms:10.3f} {quiet.p99_ms:8.3f} {tui.p50_ms:10.3f} {tui.p99_ms:8.3f}"
                f" {shares[-1]:7.2%} {ratios[-1]:7.4f}",
                flush=True,
            )
    median = statistics.median(ratios)
    print(f"median ratio {median:.4f}, aim {AIM}")
    return 0 if median <= AIM else 1


class _Home:
    """A person's folders with one file in them."""

    def __init__(self, folder: Path, path: Path) -> None:
        self._environment = {**os.environ, "HOME": str(folder), "TERM": "xterm-256color", "HF_HUB_OFFLINE": "1"}
        for name in ("DATA", "CACHE", "CONFIG", "STATE"):
            self._environment[f"XDG_{name}_HOME"] = str(folder / name.lower())
        self._results = folder / "data" / "ggbench" / "results.sqlite"
        self._path = folder / "cache" / "ggbench" / "twins" / path.name
        self._path.parent.mkdir(parents=True)
        self._path.symlink_to(path)

    def decode(self, n_gen: int) -> None:
        """On the command line, drawing nothing."""
        command = [sys.executable, "-m", "ggbench", "decode", str(self._path), "-n", str(n_gen), "--quiet", "--json"]
        subprocess.run(command, env=self._environment, check=True, stdout=subprocess.DEVNULL)

    def decode_in_tui(self, quant: str, n_gen: int, columns: int, rows: int) -> float:
        """In the TUI, with the Run screen in front; returns the share of a core that the TUI itself took meanwhile."""
        terminal = Terminal([sys.executable, "-m", "ggbench", "tui", str(self._path)], self._environment, columns, rows)
        terminal.wait_for(f"{quant} at n_ctx".encode())
        terminal.press(_START)
        terminal.wait_for(_ASKED)
        terminal.press(_DOWN + str(n_gen).encode())
        terminal.press(_ENTER)
        terminal.wait_for(_DECODING)
        began_at, began = time.monotonic(), terminal.cpu_s
        terminal.wait_for(_DONE)
        share = (terminal.cpu_s - began) / (time.monotonic() - began_at)
        terminal.press(_QUIT)
        terminal.wait_for_end()
        return share

    def latency(self, quant: str) -> LatencySummary:
        """Of the last decode, which has to be of that quant."""
        with Store.open(self._results) as store:
            stored = store.list_runs(kind="decode", limit=1)[0]
            run = read_run(store, stored)
        assert run.is_complete, run.reason
        assert run.subject.quant == quant, f"the last decode was of {run.subject.quant}"
        latency = QuantSummary.of([run]).latency
        assert latency is not None
        return latency


class Terminal:
    """A program in a pseudo-terminal; what it draws is taken in while something is waited for."""

    def __init__(self, command: list[str], environment: Mapping[str, str], columns: int, rows: int) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        self._seen = b""

    @property
    def cpu_s(self) -> float:
        """Seconds of processor time that the program took, its children left out."""
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def press(self, keys: bytes) -> None:
        """And forget what was drawn before."""
        self._seen = b""
        os.write(self._ours, keys)

    def drawn_within(self, seconds: float) -> bytes:
        """Return what is drawn until then, and since the last keys."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and select.select([self._ours], [], [], left)[0] and self._read():
            pass
        return self._seen

    def wait_for(self, drawn: bytes) -> None:
        """Until these bytes are drawn in one piece."""
        while drawn not in self._seen:
            if not self._read():
                sys.exit(f"the TUI ended, or was silent, before it drew {drawn.decode()}: {self._seen[-2000:]!r}")

    def wait_for_end(self) -> None:
        """Until the program is gone."""
        while self._read():
            self._seen = b""
        os.close(self._ours)
        self.process.wait(_LONGEST_SILENCE_S)

    def _read(self) -> bool:
        """Whether anything came; False at the end of the program, and after a long silence."""
        if not select.select([self._ours], [], [], _LONGEST_SILENCE_S)[0]:
            return False
        try:
            data = os.read(self._ours, 1 << 16)
        except OSError:
            return False
        self._seen = (self._seen + data)[-(1 << 18) :]
        return bool(data)


if __name__ == "__main__":
    sys.exit(main())
