"""The measurements behind scripts/bench_tui; exit code 1 if a median, or for keys the 9th decile, is above its aim.

The TUI runs in a terminal of its own and is driven by keys, as a person would; this process takes in what it draws, as
a terminal would. Each part has folders of its own:

- start: seconds until the first screen and until the Library lists 100 models of this disk; the first start, which
  reads their headers, is shown apart. Modules have bytecode, as where pip has installed them.
- keys: milliseconds from a key to the screen that it opens, while a decode goes on.
- watching: decode latency under the TUI over that of `ggbench decode --quiet`, in turn, with the default threads. On a
  machine that others load, only this ratio says something.
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from ggbench.gguf_file.header import read_local_header, write_sparse_file
from ggbench.models.reference import parse_model
from ggbench.models.sources import ARTICLE_QUANTS
from ggbench.models.targets import materialize, resolve_one
from ggbench.runs.store.database import Store
from ggbench.runs.stored import read_run
from ggbench.stats.decode_timing import LatencySummary

MODEL = "twin:qwen1.5-0.5b"
AIMS = {"first paint": 0.4, "Library": 0.5, "keys": 80.0, "watching": 1.03}
"""Seconds of a start, milliseconds of a key, and the ratio of latencies."""
_N_MODELS = 100
_LONG = 8192
"""Tokens of a decode that lasts longer than all keys."""
_LONGEST_SILENCE_S = 120
_ENTER, _START, _QUIT, _YES = b"\r", b"b", b"q", b"y"
_MODES, _LISTED = b"3 Results", b"on this disk"
_ASKED, _DECODING, _DONE, _SURE = b"what to measure", b"decoding", b"tok/s over", b"Stop all runs"
"""Drawn in the dialog, during a run, after it, and in the question of `q` during a run."""
_SCREENS = {b"3": b" compare", b"2": b" stop all", b"1": b" pull"}
"""Keys of screens, and what a key in a frame of theirs does."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quant", nargs="?", choices=ARTICLE_QUANTS, default="q4_k_m", help=f"of {MODEL}")
    parser.add_argument("-n", "--n-gen", type=int, default=400)
    parser.add_argument("--starts", type=int, default=5, help="0 leaves the part out, as for the others")
    parser.add_argument("--keys", type=int, default=20, help="rounds over the screens")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--size", default="120x40", help="columns x rows of the terminal")
    asked = parser.parse_args()
    columns, rows = map(int, asked.size.split("x"))
    path = materialize(resolve_one(parse_model(MODEL, asked.quant))).paths[0]
    print(f"{path.name}, {columns} x {rows}")
    results: dict[str, float] = {}
    with _home(path, columns, rows) as home:
        home.add_models()
        if asked.starts:
            results |= _time_starts(home, asked.starts)
        if asked.keys:
            results["keys"] = _time_keys(home, asked.quant, asked.keys)
    if asked.pairs:
        with _home(path, columns, rows) as home:
            results["watching"] = _compare(home, asked.quant, asked.n_gen, asked.pairs)
    for name, value in results.items():
        print(f"{name}: {value:.3f}, aim {AIMS[name]:g}")
    return 0 if all(value <= AIMS[name] for name, value in results.items()) else 1


def _time_starts(home: _Home, n_starts: int) -> dict[str, float]:
    """Return the median seconds to the first paint and to the usable Library, without the first start."""
    times = []
    print(f"{'start':>5} {'first paint':>11} {'Library':>8}   s")
    for number in range(n_starts + 1):
        with home.terminal() as terminal:
            times.append((terminal.wait_for(_MODES), terminal.wait_for(_LISTED)))
            terminal.press(_QUIT)
            terminal.wait_for_end()
        print(f"{number or 'first':>5} {times[-1][0]:11.3f} {times[-1][1]:8.3f}", flush=True)
    painted, listed = zip(*times[1:], strict=True)
    return {"first paint": statistics.median(painted), "Library": statistics.median(listed)}


def _time_keys(home: _Home, quant: str, n_rounds: int) -> float:
    """Return the largest 9th decile of the keys."""
    times: dict[bytes, list[float]] = {key: [] for key in _SCREENS}
    with home.terminal(str(home.path)) as terminal:
        terminal.start_run(quant, _LONG)
        for key, drawn in [*_SCREENS.items()] * (n_rounds + 1):
            terminal.press(key)
            times[key].append(1e3 * terminal.wait_for(drawn))
            time.sleep(0.5)  # a person reads
        terminal.press(_QUIT)
        terminal.wait_for(_SURE)
        terminal.press(_YES)
        terminal.wait_for_end()
    print(
        f"{'key':>5} {'median':>8} {'9th decile':>10} {'max':>8}   ms, without the first, which makes the screen"
    )
    deciles = []
    for key, found in times.items():
        known = found[1:]
        deciles.append(
            statistics.quantiles(known, n=10, method="inclusive")[-1] if len(known) > 1 else known[0]
        )
        print(f"{key.decode():>5} {statistics.median(known):8.1f} {deciles[-1]:10.1f} {max(known):8.1f}")
    return max(deciles)


def _compare(home: _Home, quant: str, n_gen: int, n_pairs: int) -> float:
    """Return the median ratio of p50 under the TUI to that without it."""
    ratios = []
    print(f"{n_gen} tokens; ms a token, and the share of a core the TUI took")
    print(f"{'pair':>4} {'quiet p50':>10} {'p99':>8} {'TUI p50':>10} {'p99':>8} {'share':>7} {'ratio':>7}")
    for number in range(n_pairs):
        share, latencies = 0.0, dict[str, LatencySummary]()
        for way in ("quiet", "TUI") if number % 2 == 0 else ("TUI", "quiet"):
            if way == "TUI":
                share = home.decode_in_tui(quant, n_gen)
            else:
                home.decode(n_gen)
            latencies[way] = home.latency(quant)
        quiet, tui = latencies["quiet"], latencies["TUI"]
        assert quiet.p50_ms and tui.p50_ms
        ratios.append(tui.p50_ms / quiet.p50_ms)
        print(
            f"{number + 1:4} {quiet.p50_ms:10.3f} {quiet.p99_ms:8.3f} {tui.p50_ms:10.3f} {tui.p99_ms:8.3f}"
            f" {share:7.2%} {ratios[-1]:7.4f}",
            flush=True,
        )
    return statistics.median(ratios)


class _Home:
    """A person's folders with one model in them."""

    def __init__(self, folder: Path, path: Path, columns: int, rows: int) -> None:
        self._folder, self._size = folder, (columns, rows)
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self._environment = {**kept, "HOME": str(folder), "TERM": "xterm-256color", "HF_HUB_OFFLINE": "1"}
        for name in ("DATA", "CACHE", "CONFIG", "STATE"):
            self._environment[f"XDG_{name}_HOME"] = str(folder / name.lower())
        self._results = folder / "data" / "ggbench" / "results.sqlite"
        self.path = folder / "cache" / "ggbench" / "twins" / path.name
        self.path.parent.mkdir(parents=True)
        self.path.symlink_to(path)

    def add_models(self) -> None:
        """Add models to those of LM Studio: the same header under other names, and holes in place of weights."""
        header, n_bytes = read_local_header(self.path).raw, self.path.stat().st_size
        for number in range(_N_MODELS):
            name = f"{('qwen', 'llama', 'gemma', 'phi')[number % 4]}{number}-0.5b"
            folder = self._folder / ".lmstudio" / "models" / "maker" / name
            folder.mkdir(parents=True)
            write_sparse_file(folder / f"{name}-q4_k_m.gguf", header, n_bytes)

    @contextmanager
    def terminal(self, *arguments: str) -> Iterator[Terminal]:
        """Start the TUI; it is killed in the end unless it quit."""
        terminal = Terminal(
            [sys.executable, "-P", "-m", "ggbench", "tui", *arguments], self._environment, *self._size
        )
        try:
            yield terminal
        finally:
            terminal.process.kill()

    def decode(self, n_gen: int) -> None:
        """Decode on the command line, drawing nothing."""
        command = [
            sys.executable,
            "-m",
            "ggbench",
            "decode",
            str(self.path),
            "-n",
            str(n_gen),
            "--quiet",
            "--json",
        ]
        subprocess.run(command, env=self._environment, check=True, stdout=subprocess.DEVNULL)

    def decode_in_tui(self, quant: str, n_gen: int) -> float:
        """Decode with the Run screen in front; return the share of a core that the TUI itself took meanwhile."""
        with self.terminal(str(self.path)) as terminal:
            terminal.start_run(quant, n_gen)
            began_at, began = time.monotonic(), terminal.cpu_s
            terminal.wait_for(_DONE)
            share = (terminal.cpu_s - began) / (time.monotonic() - began_at)
            terminal.press(_QUIT)
            terminal.wait_for_end()
        return share

    def latency(self, quant: str) -> LatencySummary:
        """Return the latency of the last decode, which has to be of that quant."""
        with Store.open(self._results) as store:
            stored = next(each for each in store.list_runs() if each.kind == "decode")
            run = read_run(store, stored)
        assert run.is_complete, run.reason
        assert run.subject.quant == quant, f"the last decode was of {run.subject.quant}"
        latency = run.latency
        assert latency is not None
        return latency


@contextmanager
def _home(path: Path, columns: int, rows: int) -> Iterator[_Home]:
    with tempfile.TemporaryDirectory(prefix="ggbench-bench-tui-") as folder:
        yield _Home(Path(folder), path, columns, rows)


class Terminal:
    """A program in a pseudo-terminal; what it draws is taken in while something is waited for."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], columns: int, rows: int) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._seen, self._pressed_at = b"", time.monotonic()
        self.process = subprocess.Popen(
            command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)

    @property
    def cpu_s(self) -> float:
        """Seconds of processor time that the program took, its children left out."""
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def start_run(self, quant: str, n_gen: int) -> None:
        """Start a decode of the planned quant, and wait for its first token."""
        self.wait_for(f"memory: {quant}".encode())
        self.press(_START)
        self.wait_for(_ASKED)
        self.press(str(n_gen).encode())
        self.press(_ENTER)
        self.wait_for(_DECODING)

    def press(self, keys: bytes) -> None:
        """Press keys, and forget what was drawn before."""
        while select.select([self._ours], [], [], 0)[0] and self._read():
            pass
        self._seen, self._pressed_at = b"", time.monotonic()
        os.write(self._ours, keys)

    def drawn_within(self, seconds: float) -> bytes:
        """Return what is drawn until then, and since the last keys."""
        until = time.monotonic() + seconds
        while (
            (left := until - time.monotonic()) > 0
            and select.select([self._ours], [], [], left)[0]
            and self._read()
        ):
            pass
        return self._seen

    def wait_for(self, drawn: bytes) -> float:
        """Wait until these bytes are drawn in one piece; return the seconds since the start, or since the last key."""
        while drawn not in self._seen:
            if not self._read():
                sys.exit(
                    f"the TUI ended, or was silent, before it drew {drawn.decode()}: {self._seen[-2000:]!r}"
                )
        return time.monotonic() - self._pressed_at

    def wait_for_end(self) -> None:
        """Wait until the program is gone."""
        while self._read():
            self._seen = b""
        os.close(self._ours)
        self.process.wait(_LONGEST_SILENCE_S)

    def _read(self) -> bool:
        """Return whether anything came; False at the end of the program, and after a long silence."""
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
