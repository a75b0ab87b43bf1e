"""The tables behind scripts/coverage; exit code 1 where an interval fails.

Each row is a noise of machines that multiplies the latency of a known line, and continues while the windows are timed
again that follow a run. An interval fails where it is printed without a mark and covers the truth in fewer than 90 %,
unless that is rare: 5 % of all runs or fewer. A run that is not marked and has no interval does not fail.

With a FILE, the noise is that of real decodes of it, resampled from a random start; with --load, a decode is disturbed
in its middle by a busy loop on each core, which must be marked, and its W agree with the quiet one.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ggbench.experiments.decode.record import DecodeResult
from ggbench.runs.store.database import Store
from ggbench.runs.stored import listed_run
from ggbench.stats.decode_timing import DecodeWindow, LineFit
from ggbench.stats.linefit import again_windows, fit_line, fit_windows
from ggbench.stats.speed import prompt_speed, summarize
from ggbench.stats.turns import ordered

Floats = NDArray[np.float64]
AIM, RARE = 0.90, 0.05
N_PROMPT = 25
LENGTHS = (250, 500, 1000, 2500, 10_000)
B_MS, W = 13.12, 800.0
WINDOW, W_BEYOND = 1024, 4706.0
"""A sliding window, and W beyond it."""
BUDGET = 2051
"""Positions that sparse attention reads at most."""
PLATEAU = 4000
"""Position up to which latency stays the same."""
JITTER = 0.02
"""Standard deviation of a step's white noise, in every row."""
FILL_STEPS = 30
"""Steps that filling the cache takes before a window."""
PROMPT_STEPS = 150
"""Steps that a prompt takes."""

Factors = Callable[[np.random.Generator, int, int], Floats]
"""The factor of each step, of so many in all, for a run of `n_gen` steps."""


def still(rng: np.random.Generator, n_gen: int, n_all: int) -> Floats:
    """The machine stays as it is."""
    return np.ones(n_all)


def autoregressive(rng: np.random.Generator, n_gen: int, n_all: int) -> Floats:
    """Noise of 3 % with a correlation of 0.9 from one step to the next."""
    shocks = rng.standard_normal(n_all) * np.sqrt(1 - 0.9**2)
    for index in range(1, n_all):
        shocks[index] += 0.9 * shocks[index - 1]
    found: Floats = np.exp(0.03 * shocks)
    return found


def spikes(rng: np.random.Generator, n_gen: int, n_all: int) -> Floats:
    """One step in a hundred takes five times as long."""
    return (1 + 4 * (rng.random(n_all) < 0.01)) / 1.04


def two_states(rng: np.random.Generator, n_gen: int, n_all: int) -> Floats:
    """The machine is 5 % slower or faster for some 300 steps."""
    is_slow = (rng.integers(2) + np.cumsum(rng.random(n_all) < 1 / 300)) % 2
    return np.where(is_slow, 1.05, 0.95)


def falling_clock(rng: np.random.Generator, n_gen: int, n_all: int) -> Floats:
    """The clock falls by 5 % while the run lasts, and stays there."""
    return 1 + 0.05 * np.minimum(np.arange(n_all) / n_gen, 1)


def turbo(rng: np.random.Generator, n_gen: int, n_all: int) -> Floats:
    """A faster clock of the beginning decays by 5 %."""
    return 1 - 0.05 * np.exp(-np.arange(n_all) / 2000)


class Noise(NamedTuple):
    """A row: how the machine changes, and how the model's latency grows."""

    factors: Factors
    line: Callable[[Floats], Floats] = lambda n: B_MS + (n - 1) / W
    w: float = W
    b_ms: float = B_MS
    breaks: tuple[int, ...] = ()
    """Window or budget that the header names; W up to there is `W`."""


NOISES: Mapping[str, Noise] = {
    "white": Noise(still),
    "AR 0.9": Noise(autoregressive),
    "1 % spikes of 5x": Noise(spikes),
    "stairs of 256": Noise(still, lambda n: B_MS + (np.ceil(n / 256) * 256 - 128.5) / W),
    "two states of ~300": Noise(two_states),
    "clock falls 5 %": Noise(falling_clock),
    "turbo decays 5 %": Noise(turbo),
    "window of 1,024": Noise(
        still,
        lambda n: B_MS + (n - 1) / W_BEYOND + np.minimum(n - 1, WINDOW - 1) * (1 / W - 1 / W_BEYOND),
        W_BEYOND,
        breaks=(WINDOW,),
    ),
    "budget of 2,051": Noise(
        still,
        lambda n: B_MS + np.minimum(n - 1, BUDGET - 1) / W + np.maximum(n - BUDGET, 0) / W_BEYOND,
        W_BEYOND,
        breaks=(BUDGET,),
    ),
    "plateau of a GPU": Noise(still, lambda n: B_MS + np.maximum(n - 1, PLATEAU) / W, W, B_MS + PLATEAU / W),
}


class Tally:
    """What became of one figure in all runs of a row."""

    def __init__(self) -> None:
        self.covered, self.n_marked, self.n_runs = list[bool](), 0, 0

    def add(self, ends: tuple[float, float | None] | None, truth: float, *, marked: bool = False) -> None:
        """Count an interval; `truth` may be infinite."""
        self.n_runs += 1
        self.n_marked += marked
        if ends is not None and not marked:
            self.covered.append(
                ends[0] <= truth * (1 + 1e-9) and (ends[1] is None or truth <= ends[1] * (1 + 1e-9))
            )

    @property
    def fails(self) -> bool:
        """Whether what is printed covers too rarely."""
        n_wrong = self.covered.count(False)
        return bool(self.covered) and n_wrong > (1 - AIM) * len(self.covered) and n_wrong > RARE * self.n_runs

    @property
    def cells(self) -> list[str]:
        """Share covered of what is printed without a mark, and shares marked and without an interval."""
        shown = len(self.covered)
        none = self.n_runs - self.n_marked - shown
        covered = f"{sum(self.covered) / shown:.2f}" if shown else "-"
        return [
            f"{covered}{' ✗' if self.fails else ''}",
            *(f"{each / self.n_runs:.2f}" for each in (self.n_marked, none)),
        ]


def latencies(rng: np.random.Generator, clean: Floats, factors: Floats) -> Floats:
    """Latencies in ms with white noise."""
    return clean * factors * np.exp(JITTER * rng.standard_normal(len(clean)) - JITTER**2 / 2)


def decode_once(rng: np.random.Generator, noise: Noise, n_gen: int, tallies: Mapping[str, Tally]) -> None:
    """Simulate a decode with its windows, and count what is said of it."""
    again = again_windows(N_PROMPT + 1, n_gen, noise.breaks)
    n_all = n_gen + sum(FILL_STEPS + n_each for _, n_each in again)
    factors, position = (
        noise.factors(rng, n_gen, n_all),
        np.arange(N_PROMPT + 1, N_PROMPT + 1 + n_gen, dtype=float),
    )
    clean, windows, at = noise.line(position), [], n_gen
    step_ns = latencies(rng, clean, factors[:n_gen]) * 1e6
    for depth, n_each in again:
        at += FILL_STEPS
        steps = latencies(
            rng, noise.line(depth + 1 + np.arange(n_each, dtype=float)), factors[at : at + n_each]
        )
        windows.append(DecodeWindow(depth, n_each, float(steps.sum()) * 1e6))
        at += n_each
    # of a machine that drifts, the truth is that of its mean state; the other noises have a mean of 1
    drift = factors[:n_gen] if noise.factors in (falling_clock, turbo) else np.ones(n_gen)
    fit, latency = fit_line(position, step_ns, windows, noise.breaks), summarize(position, step_ns)
    assert fit is not None and latency is not None
    w = noise.w if position[-1] > PLATEAU or noise.b_ms == B_MS else np.inf
    for each in fit.breaks:
        tallies["W"].add(each.w_ci95, W, marked=fit.has_changed)
    tallies["W"].add(fit.w_ci95, w / drift.mean(), marked=fit.has_changed)
    tallies["B"].add(fit.b_ci95, noise.b_ms * drift.mean(), marked=fit.has_changed)
    tallies["speed"].add(latency.tok_s_ci95, 1e3 / float((clean * drift).mean()), marked=fit.has_changed)


def prompts_once(noise: Noise, rng: np.random.Generator, repeat: int, tally: Tally) -> None:
    """Simulate a prompt read several times, one after another."""
    factors = noise.factors(rng, repeat * PROMPT_STEPS, repeat * PROMPT_STEPS).reshape(repeat, -1).mean(axis=1)
    drift = factors.mean() if noise.factors in (falling_clock, turbo) else 1.0
    times_ns = 1e9 * factors * np.exp(JITTER / 4 * rng.standard_normal(repeat))
    tally.add(prompt_speed(512, times_ns.astype(np.int64).tolist()).tok_s_ci95, 512 / drift)


def correlated_once(correlation: float, rng: np.random.Generator, repeat: int, tally: Tally) -> None:
    """Simulate timings of which each resembles the one before."""
    lags = np.abs(np.subtract.outer(np.arange(repeat), np.arange(repeat)))
    noise = np.linalg.cholesky(correlation**lags) @ rng.standard_normal(repeat)
    tally.add(prompt_speed(512, (1e9 * (1 + 0.03 * noise)).astype(np.int64).tolist()).tok_s_ci95, 512)


def depths_once(
    rng: np.random.Generator, noise: Noise, depths: Sequence[int], repeat: int, tally: Tally
) -> None:
    """Simulate `decode -d` in turns, forwards and backwards."""
    n_all, at, windows = repeat * len(depths) * (128 + FILL_STEPS), 0, []
    factors = noise.factors(rng, n_all, n_all)
    for turn in range(repeat):
        for depth in ordered(depths, turn):
            at += FILL_STEPS
            steps = latencies(rng, noise.line(depth + 1 + np.arange(128.0)), factors[at : at + 128])
            windows.append(DecodeWindow(depth, 128, float(steps.sum()) * 1e6))
            at += 128
    drift = factors.mean() if noise.factors in (falling_clock, turbo) else 1.0
    fit = fit_windows(windows)
    assert fit is not None
    tally.add(fit.w_ci95, noise.w / float(drift))


def simulate(n_runs: int) -> bool:
    """Print the tables; return whether every row holds."""
    holds = True
    print("| noise | tokens | W | marked | none | B | marked | none | speed | marked | none |")
    print("|---|---:|" + "---:|" * 9)
    for name, noise in NOISES.items():
        for n_gen in LENGTHS:
            tallies = {figure: Tally() for figure in ("W", "B", "speed")}
            for index in range(n_runs):
                decode_once(np.random.default_rng([n_gen, index]), noise, n_gen, tallies)
            print_row([name, f"{n_gen:,}"], *tallies.values())
            holds &= not any(each.fails for each in tallies.values())
    print("\n| W of `decode -d` | depths | turns | W | marked | none |\n|---|---|---:|---:|---:|---:|")
    for name in ("white", "two states of ~300", "clock falls 5 %"):
        for depths in ((0, 4096), (0, 4096, 16384)):
            for repeat in (1, 4, 8):
                tally = Tally()
                for index in range(n_runs):
                    depths_once(np.random.default_rng([repeat, index]), NOISES[name], depths, repeat, tally)
                print_row([name, ", ".join(f"{each:,}" for each in depths), str(repeat)], tally)
                holds &= not tally.fails
    print("\n| prompts | timings | speed | marked | none |\n|---|---:|---:|---:|---:|")
    for name, once in _prompts():
        for repeat in (3, 8, 16):
            tally = Tally()
            for index in range(n_runs):
                once(np.random.default_rng([repeat, index]), repeat, tally)
            print_row([name, str(repeat)], tally)
            holds &= not tally.fails
    return holds


_Once = Callable[[np.random.Generator, int, Tally], None]


def _prompts() -> Iterator[tuple[str, _Once]]:
    for correlation in (0.0, 0.5, 0.8):
        yield f"correlated by {correlation}", functools.partial(correlated_once, correlation)
    for name in ("AR 0.9", "1 % spikes of 5x", "two states of ~300", "clock falls 5 %"):
        yield name, functools.partial(prompts_once, NOISES[name])


def print_row(labels: Sequence[str], *tallies: Tally) -> None:
    """Print a row of a table."""
    print("|", " | ".join([*labels, *(cell for tally in tallies for cell in tally.cells)]), "|", flush=True)


def resample(command: Sequence[str], n_decodes: int, n_gen: int, n_runs: int) -> bool:
    """Decode a file several times, and resample what its steps have beyond their line."""
    rests = []
    for _ in range(n_decodes):
        with decoded(command, n_gen) as (_, position, step_ns):
            slope, intercept = np.polyfit(position, step_ns, 1)
            rests.append(step_ns / (intercept + slope * position))
    rest = np.concatenate(rests) / np.concatenate(rests).mean()

    def factors(rng: np.random.Generator, _: int, n_all: int) -> Floats:
        return np.resize(np.roll(rest, -int(rng.integers(len(rest)))), n_all)

    print(f"\n{len(rest):,} steps of {n_decodes} decodes of {command[0]}, from a random start")
    print("| tokens | W | marked | none | B | marked | none | speed | marked | none |")
    print("|---:|" + "---:|" * 9)
    holds = True
    for length in LENGTHS:
        tallies = {figure: Tally() for figure in ("W", "B", "speed")}
        for index in range(n_runs):
            decode_once(np.random.default_rng([length, index]), Noise(factors), length, tallies)
        print_row([f"{length:,}"], *tallies.values())
        holds &= not any(each.fails for each in tallies.values())
    return holds


def load(command: Sequence[str], n_decodes: int, n_gen: int) -> bool:
    """Disturb decodes in their middle; print what is said of W, beside that of a quiet decode.

    A quiet W has an interval of its own, so the two agree where the difference of their slopes, 1 / W, is no
    larger than both half-widths together, added in squares.
    """
    with decoded(command, n_gen) as (quiet, *_):
        slope, half = slope_of(quiet)
        print(f"\nquiet: W {quiet.w_tokens_per_ms} {quiet.w_ci95}, marked: {quiet.has_changed}", flush=True)
    n_right = 0
    for number in range(1, n_decodes + 1):
        with decoded(command, n_gen, loaded=True) as (fit, *_):
            own_slope, own_half = slope_of(fit)
            agrees = abs(own_slope - slope) <= np.hypot(own_half, half)
            n_right += bool(fit.has_changed and agrees)
            print(
                f"loaded {number}: W {fit.w_tokens_per_ms} {fit.w_ci95}, marked: {fit.has_changed}", flush=True
            )
    print(f"{n_right} of {n_decodes} are marked and agree with the quiet W")
    return n_right >= AIM * n_decodes


def slope_of(fit: LineFit) -> tuple[float, float]:
    """Return 1 / W in ms a token and half the width of its interval; an open end is a slope of 0."""
    if fit.w_ci95 is None:
        raise SystemExit("a decode shows no W: more tokens (-n)")
    low, high = fit.w_ci95
    ends = 1 / low, 1 / high if high else 0.0
    return (ends[0] + ends[1]) / 2, (ends[0] - ends[1]) / 2


@contextlib.contextmanager
def decoded(
    decode: Sequence[str], n_gen: int, *, loaded: bool = False
) -> Iterator[tuple[LineFit, Floats, Floats]]:
    """Decode a file in a process and a store of its own; yield the fit, the positions and the steps in ns."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "ggbench" / "results.sqlite"
        command = [sys.executable, "-P", "-m", "ggbench", "decode", *decode, "-n", str(n_gen), "--quiet"]
        environment = {**os.environ, "XDG_DATA_HOME": folder}
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as running:
            if loaded:
                disturb(running, store, n_gen)
        if running.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {running.returncode}")
        with Store.open(store) as opened:
            (stored,) = opened.list_runs()
            result, samples = listed_run(stored).result, opened.load_samples(stored.run_id)
        assert isinstance(result, DecodeResult) and result.fit is not None
        yield result.fit, samples.position.astype(float), samples.step_ns.astype(float)


def disturb(running: subprocess.Popen[bytes], store: Path, n_gen: int) -> None:
    """Keep every core busy from 40 to 70 % of a decode."""
    loops = [multiprocessing.Process(target=spin, daemon=True) for _ in range(os.cpu_count() or 1)]
    wait_for(running, store, 0.4 * n_gen)
    for each in loops:
        each.start()
    wait_for(running, store, 0.7 * n_gen)
    for each in loops:
        each.terminate()
        each.join()


def spin() -> None:
    """Use a core until terminated."""
    while True:
        pass


def wait_for(running: subprocess.Popen[bytes], path: Path, n_steps: float) -> None:
    """Wait until the only run of a store has so many steps, or its program has ended."""
    while running.poll() is None:
        time.sleep(0.2)
        if path.exists():
            with Store.open(path) as store:
                if any(run.n_samples >= n_steps for run in store.list_runs()):
                    return


def main() -> int:
    """Print the tables that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", help="resample decodes of this file instead of simulating")
    parser.add_argument("--load", action="store_true", help="disturb the decodes of the file")
    parser.add_argument("--decodes", type=int, help="of the file; 4 by default, 10 with --load")
    parser.add_argument("-n", "--n-gen", type=int, default=10_000, help="tokens of each")
    parser.add_argument("-t", "--threads", help="of each")
    parser.add_argument("--runs", type=int, default=400, help="simulated runs in each row")
    asked = parser.parse_args()
    command = [asked.file, *(["-t", asked.threads] if asked.threads else [])]
    if asked.load and asked.file:
        return 0 if load(command, asked.decodes or 10, asked.n_gen) else 1
    holds = (
        resample(command, asked.decodes or 4, asked.n_gen, asked.runs) if asked.file else simulate(asked.runs)
    )
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
