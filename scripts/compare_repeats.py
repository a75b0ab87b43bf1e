"""The tables behind scripts/compare_repeats; exit code 1 where repeats differ too often, or the two settings do not.

Both settings are decoded in turn, each in a process of its own that loads the model again, until there are as many runs
as asked for or the time is up; another call with the same folder goes on. Then every pair of runs is compared three
times: by the interval within each run alone, with the spread between loads that is assumed before any repeat is known,
and with the spread learned from all repeats but the two. A comparison of 95 % intervals should call at least 19 of 20
pairs of one setting no difference.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from ggbench.decisions.compare.comparison import Comparison, compare
from ggbench.decisions.compare.estimates import Repeats, RunSpreads
from ggbench.runs.comparable import setting_of
from ggbench.runs.run import Run
from ggbench.runs.store.database import Store
from ggbench.runs.store.facts import NEWEST
from ggbench.runs.stored import listed_run
from ggbench.runs.summary import QuantSummary
from ggbench.show.metric import Metric
from ggbench.stats.samples import LoadSpread

AIM = 19 / 20
VERDICTS = ("no difference", "different", "not judged")
METRICS = {"tok_s": "speed", "w_tokens_per_ms": "W", "b_ms": "B", "": "any of them"}

Spreads = Callable[[Run, Run], RunSpreads]


class WithinRunsAlone(RunSpreads):
    """No spread between loads: what a comparison is without repeats in mind."""

    def of(self, metric: Metric, summary: QuantSummary) -> LoadSpread:
        """Return no spread, known exactly."""
        return LoadSpread(sigma=0.0, freedom=1000, n_repeats=1000)

    def is_disturbed(self, metric: Metric, summary: QuantSummary) -> bool:
        """Return False: there is nothing to compare with."""
        return False


def main() -> int:
    """Measure, then count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", nargs=2, metavar="MODEL[:QUANT]", help="as `ggbench decode` takes them")
    parser.add_argument("--folder", type=Path, required=True, help="for the store of these runs")
    parser.add_argument("--runs", type=int, default=10, help="of each setting")
    parser.add_argument("-n", "--n-gen", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=240, help="begin no run after this")
    asked = parser.parse_args()
    until = time.monotonic() + asked.seconds
    store = asked.folder / "ggbench" / "results.sqlite"
    while time.monotonic() < until and len(runs_of(store)) < 2 * asked.runs:
        for setting in asked.settings:
            measure(setting, asked)
    return count(runs_of(store))


def measure(setting: str, asked: argparse.Namespace) -> None:
    """Decode once in a process of its own."""
    command = [sys.executable, "-P", "-m", "ggbench", "decode", setting, "-n", str(asked.n_gen), "--quiet"]
    environment = {**os.environ, "XDG_DATA_HOME": str(asked.folder)}
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)


def runs_of(path: Path) -> list[Run]:
    """The completed runs, newest first."""
    if not path.exists():
        return []
    with Store.open(path) as store:
        return [run for run in map(listed_run, store.list_runs()) if run.is_complete]


def count(runs: Sequence[Run]) -> int:
    """Print the runs and the tables."""
    settings: dict[str, list[Run]] = {}
    for run in runs:
        settings.setdefault(setting_of(run), []).append(run)
    groups = tuple(tuple(group[:NEWEST]) for group in settings.values() if len(group) > 1)
    if len(groups) != 2:
        print(f"{len(groups)} settings have repeats, not 2")
        return 1
    for group in groups:
        speeds = ", ".join(f"{QuantSummary.of([run]).latency.tok_s:.1f}" for run in reversed(group))  # type: ignore[union-attr]
        print(f"{group[0].subject.quant}: {len(group)} runs, tok/s {speeds}")
    same = [pair for group in groups for pair in itertools.combinations(group, 2)]
    other = [(one, another) for one in groups[0] for another in groups[1]]
    print("\n| intervals | pairs | metric | no difference | different | not judged |")
    print("|---|---|---|---:|---:|---:|")
    ways: dict[str, Spreads] = {
        "within runs alone": lambda *_: WithinRunsAlone(),
        "spread assumed": lambda *_: RunSpreads(),
        "spread learned": lambda one, another: RunSpreads(_without(groups, one, another)),
    }
    tallies = {}
    for name, spreads in ways.items():
        for what, pairs in (("of one setting", same), ("of two settings", other)):
            compared = [compare([(QuantSummary.of([run]),) for run in pair], spreads(*pair)) for pair in pairs]
            for key, metric in METRICS.items():
                tallies[name, what, key] = tally = Counter(verdict_on(key, each) for each in compared)
                print(f"| {name} | {what} | {metric} | {' | '.join(str(tally[each]) for each in VERDICTS)} |")
    of_same, of_other = (tallies["spread learned", what, ""] for what in ("of one setting", "of two settings"))
    return 0 if of_same["different"] <= (1 - AIM) * len(same) and not of_other["no difference"] else 1


def verdict_on(key: str, compared: Comparison) -> str:
    """Whether two runs differ in a metric, or without a key in any."""
    if not key:
        found = {verdict_on(each, compared) for each in METRICS if each}
        return next(verdict for verdict in ("different", *VERDICTS) if verdict in found)
    line = next(line for line in compared.metrics if line.metric == key)
    apart = line.versus[1]
    if apart is None or apart.ratio_ci95 is None:
        return "not judged"
    low, high = apart.ratio_ci95
    return "no difference" if low <= 1 <= high else "different"


def _without(groups: Repeats, *left_out: Run) -> Repeats:
    numbers = {run.run_id for run in left_out}
    rest = [[run for run in group if run.run_id not in numbers] for group in groups]
    return tuple(tuple(group) for group in rest if len(group) > 1)


if __name__ == "__main__":
    sys.exit(main())
