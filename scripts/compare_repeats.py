"""The tables behind scripts/compare_repeats: how often runs in turns name a winner, of equals and of others.

Without settings, the values of runs are drawn: equal but for noise, and with one that is faster. Two settings are
decoded in turns, each run in a process of its own, which loads the model again, and compared; one setting twice
tells how often equals differ. Exit code 1 if equals have a winner in over 5 % of the comparisons (and the error of
drawing), or a true 5 % is found in less than 80 % of 8 turns with 2 % noise.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ggbench.decisions.compare.comparison import compare
from ggbench.runs.run import Run
from ggbench.runs.store.database import Store
from ggbench.runs.stored import listed_run
from ggbench.stats.intervals import differing
from ggbench.stats.turns import ordered, ratio_of_turns

MOST_FALSE, LEAST_FOUND = 0.05, 0.8
Noise: TypeAlias = Callable[[np.random.Generator, int], NDArray[np.float64]]
"""Draws the logarithms of so many runs, one after the other."""


def white(deviation: float) -> Noise:
    """Return noise of this standard deviation, as a share."""
    return lambda random, count: deviation * random.normal(size=count)


def lasting(deviation: float, correlation: float) -> Noise:
    """Return noise of which neighbours are correlated."""

    def draw(random: np.random.Generator, count: int) -> NDArray[np.float64]:
        shocks = random.normal(size=count) * math.sqrt(1 - correlation**2)
        return deviation * np.array(
            [*itertools.accumulate(shocks, lambda before, each: correlation * before + each)]
        )

    return draw


def slowing(deviation: float, by: float) -> Noise:
    """Return noise on a machine that slows by this share over all runs."""
    return lambda random, count: deviation * random.normal(size=count) + np.linspace(0, by, count)


def with_bursts(deviation: float) -> Noise:
    """Return noise of which one run in ten takes twice as long."""
    return lambda random, count: (
        deviation * random.normal(size=count) + math.log(2) * (random.random(count) < 0.1)
    )


NOISES: dict[str, Noise] = {
    **{f"sd {100 * each:.0f} %": white(each) for each in (0.01, 0.02, 0.04, 0.06)},
    "sd 4 %, correlated by 0.5 from run to run": lasting(0.04, 0.5),
    "sd 2 %, slowing by 20 %": slowing(0.02, 0.2),
    "sd 2 %, one run in ten at half the speed": with_bursts(0.02),
}


def winners(noise: Noise, n_turns: int, n_columns: int, lead: float, random: np.random.Generator) -> bool:
    """Draw one comparison, of which the first column is faster by this lead; return whether any two differ."""
    order = np.array([column for turn in range(n_turns) for column in ordered(range(n_columns), turn)])
    logs = noise(random, len(order)) - lead * (order == 0)
    columns = [logs[order == column] for column in range(n_columns)]
    found = {}
    for one, other in itertools.combinations(range(n_columns), 2):
        ratio = ratio_of_turns(np.exp(columns[one] - columns[other]).tolist())
        assert ratio is not None
        found[one, other] = ratio.p
    return bool(differing(found))


def simulate(n_trials: int) -> int:
    """Print the shares of drawn comparisons with a winner."""
    sizes = ((2, 4), (2, 8), (2, 16), (8, 8))
    is_kept, random = True, np.random.default_rng(66)
    print(
        "| noise | "
        + " | ".join(f"{columns} equal, {turns} turns" for columns, turns in sizes)
        + " | 5 % faster, 8 turns |"
    )
    print("|---|" + "---:|" * (len(sizes) + 1))
    for name, noise in NOISES.items():
        shares = []
        for columns, turns in sizes:
            count = n_trials // (1 if columns == 2 else 10)
            shares.append(sum(winners(noise, turns, columns, 0.0, random) for _ in range(count)) / count)
            is_kept &= shares[-1] <= MOST_FALSE + 2 * math.sqrt(MOST_FALSE * (1 - MOST_FALSE) / count)
        power = sum(winners(noise, 8, 2, math.log(1.05), random) for _ in range(n_trials // 4)) / (
            n_trials // 4
        )
        if name == "sd 2 %":
            is_kept &= power >= LEAST_FOUND
        print(f"| {name} | " + " | ".join(f"{share:.1%}" for share in (*shares, power)) + " |", flush=True)
    return 0 if is_kept else 1


def measure(asked: argparse.Namespace) -> int:
    """Decode both settings in turns, compare them in groups of turns, and print how many have a winner."""
    groups = []
    for _ in range(asked.times):
        columns: list[list[Run]] = [[], []]
        for turn in range(asked.turns):
            for side in ordered(range(2), turn):
                columns[side].append(decoded(asked.settings[side], asked))
        groups.append(compare(columns))
    speeds = [next(line for line in each.metrics if line.metric == "tok_s") for each in groups]
    for line in speeds:
        print(line.verdict)
    n_better = sum(line.outcome == "better" for line in speeds)
    print(f"{n_better} of {len(speeds)} have a winner")
    is_equal = asked.settings[0] == asked.settings[1]
    return int(is_equal and n_better > math.ceil(MOST_FALSE * len(speeds)))


def decoded(setting: str, asked: argparse.Namespace) -> Run:
    """Decode once in a process of its own, and return the run."""
    command = [sys.executable, "-P", "-m", "ggbench", "decode", setting, "-n", str(asked.n_gen), "--quiet"]
    environment = {**os.environ, "XDG_DATA_HOME": str(asked.folder)}
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    with Store.open(asked.folder / "ggbench" / "results.sqlite") as store:
        return listed_run(next(iter(store.list_runs())))


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw, or measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "settings", nargs="*", metavar="MODEL[:QUANT]", help="two, as `ggbench decode` takes them"
    )
    parser.add_argument("--folder", type=Path, help="for the store of these runs")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--times", type=int, default=10, help="comparisons of so many turns")
    parser.add_argument("-n", "--n-gen", type=int, default=256)
    parser.add_argument("--trials", type=int, default=8000, help="drawn comparisons")
    asked = parser.parse_args(arguments)
    if len(asked.settings) not in (0, 2) or (asked.settings and asked.folder is None):
        parser.error("give two settings and --folder, or none")
    return measure(asked) if asked.settings else simulate(asked.trials)


if __name__ == "__main__":
    sys.exit(main())
