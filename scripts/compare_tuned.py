"""The gain that `ggbench tune` has stated beside what `decode`'s own workload takes, in alternating pairs of processes.

Of a stored search, the defaults and the settings that were found are each loaded in a worker of its own, by turns. At
depth 0 a decode follows one token; at each other depth it follows a prompt of that length, or with --copied copies of
a few cells, where reading the prompt takes too long. On a shared machine only pairs that were timed while nothing else
ran are meaningful. Exit code 1 where the mean of the pairs is outside the interval that was stated at any depth.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import threading
from pathlib import Path

from ggbench.engines.contract import Decode, DecodeAtDepth, Source, Workload
from ggbench.engines.endings import Completed, EngineEnded
from ggbench.engines.events import Steps
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.engine import launch
from ggbench.experiments.tune.record import TuneResult, changes_text
from ggbench.runs.store.database import Store
from ggbench.runs.stored import read_run


def main() -> int:
    """Time the pairs and print them with their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=int, help="number of the stored search")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("-n", "--n-gen", type=int, default=32)
    parser.add_argument("--copied", action="store_true", help="fill the cache with copies instead of a prompt")
    asked = parser.parse_args()
    with Store.open() as store:
        run = read_run(store, store.load_run(asked.run))
    found = run.result
    if not isinstance(found, TuneResult) or found.best is None:
        print("no setting beat the defaults")
        return 0
    path = Path(run.subject.file)
    print(f"{path.name}: {changes_text(found.changes(found.best))}")
    print(f"{'depth':>7} {'defaults ms':>12} {'tuned ms':>9} {'ratio':>6} {'lowest':>7} {'highest':>8}   stated")
    is_within = True
    for gain in found.gain:
        assert gain.decode is not None
        depth = max(1, gain.n_depth)
        is_copied = asked.copied and gain.n_depth > 0
        workload = DecodeAtDepth(depth, asked.n_gen) if is_copied else Decode(depth, asked.n_gen)
        before, after = [], []
        for _ in range(asked.pairs):
            before.append(median_ms(path, found.candidates[0].setup, workload))
            after.append(median_ms(path, found.best.setup, workload))
        ratios = [old / new for old, new in zip(before, after, strict=True)]
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        is_within &= gain.decode.low <= mean <= gain.decode.high
        print(
            f"{gain.n_depth:>7,} {statistics.median(before):>12.2f} {statistics.median(after):>9.2f} {mean:>6.3f} "
            f"{min(ratios):>7.3f} {max(ratios):>8.3f}   {gain.decode.low:.3f} to {gain.decode.high:.3f}"
        )
    return 0 if is_within else 1


def median_ms(path: Path, setup: LlamaConfig, workload: Workload) -> float:
    """Of a token, in a worker of its own, after the same workload has run once."""
    engine = launch(threading.Event())
    try:
        for _ in engine.open(Source(path), setup):
            pass
        short = DecodeAtDepth(1, 4) if isinstance(workload, DecodeAtDepth) else Decode(1, 4)
        *_, ending = engine.run(short)
        *events, ending = engine.run(workload)
        if not isinstance(ending, Completed):
            raise EngineEnded(ending)  # type: ignore[arg-type]
        return statistics.median(ns for each in events if isinstance(each, Steps) for ns in each.step_ns) / 1e6
    finally:
        engine.close()


if __name__ == "__main__":
    sys.exit(main())
