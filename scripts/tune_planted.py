"""Searches on simulated machines whose best settings are known: how often they are found, and how often a gain is
claimed where there is none.

On each machine flash attention, which the default chooses, costs 1.25 times the time at both depths. Each has noise
from measurement to measurement and from step to step; some also slow down steadily, or jump to two thirds of their
speed in the middle of the search. Exit code 1 where the planted default is found in fewer than 19 of 20, where a gain
is claimed in more than 1 of 20 searches with nothing to find, or where a stated interval holds the truth in fewer than
9 of 10.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from ggbench.experiments.tune.record import TuneResult, TuneSettings
from ggbench.gguf_file.twin import cached_twin
from ggbench.models.reference import parse_model
from ggbench.models.targets import resolve_one
from tests.conftest import TINY
from tests.fakes.planted import Effects, PlantedMachine

SETTINGS = TuneSettings(depths=(0, 4096), within_s=300)
TRUTH = 1.25
PLANTED: Effects = {("flash_attn", "auto"): TRUTH, ("threads", 1): 1.7}
NOISES: dict[str, dict[str, Any]] = {
    "noise 1 %": {"noise": 0.01},
    "noise 3 %": {"noise": 0.03},
    "noise 5 %": {"noise": 0.05},
    "3 % and a drift of 0.2 % a second": {"noise": 0.03, "drift_per_s": 0.002},
    "3 % and a jump to 1.5 times": {"noise": 0.03, "jump_at_s": 30.0, "jump": 1.5},
}


def main() -> int:
    """Search on every machine with every seed, and print a row for each machine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    n = parser.parse_args().seeds
    print(
        "| machine | planted default found | truth in the interval | gain claimed where none is | measurements |"
    )
    print("|---|---:|---:|---:|---:|")
    is_good = True
    with tempfile.TemporaryDirectory() as folder:
        target = resolve_one(parse_model(str(cached_twin("tiny", TINY, "q8_0", Path(folder)))))
        for name, noise in NOISES.items():
            n_found = n_held = n_false = n_measured = 0
            for seed in range(n):
                machine = PlantedMachine(seed, PLANTED, **noise)
                result = machine.tune(target, SETTINGS).result
                assert isinstance(result, TuneResult)
                is_found = result.changes == {"flash_attn": "off"}
                n_found, n_measured = (
                    n_found + is_found,
                    n_measured + machine.n_measured // len(SETTINGS.depths),
                )
                n_held += (
                    is_found and result.ratio is not None and result.ratio.low <= TRUTH <= result.ratio.high
                )
                nothing = PlantedMachine(seed, {}, **noise).tune(target, SETTINGS).result
                assert isinstance(nothing, TuneResult)
                n_false += nothing.has_gain
            row = f"{n_found} of {n} | {n_held} of {n_found} | {n_false} of {n} | {n_measured / n:.0f}"
            print(f"| {name} | {row} |", flush=True)
            is_good &= n_found >= 0.95 * n and n_false <= 0.05 * n and n_held >= 0.9 * n_found
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
