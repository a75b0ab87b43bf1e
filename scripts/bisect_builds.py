"""Find the first of several llama-servers, oldest first, that decodes slower than the first of them.

Each step measures the oldest and one other in turns, with `ggbench bench --engine`. A build is slower if the 95 %
interval of the ratio of their speeds excludes 1, and as fast if it excludes a loss of --slower; until one of them holds
the rounds double, up to --most-rounds. Exit code 0 if a slower build or none was found, 1 if a step stays undecided,
6 if a build does not run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, NamedTuple

_ROOT = Path(__file__).parents[1]
Verdict = Literal["slower", "as fast", "undecided", "does not run"]


class Step(NamedTuple):
    verdict: Verdict
    ratio: float
    low: float
    high: float

    @property
    def text(self) -> str:
        return f"{self.verdict}: {self.ratio:.3f} ({self.low:.3f} to {self.high:.3f}) of the first's speed"


def main() -> int:
    """Bisect; prints each step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL[:QUANT]")
    parser.add_argument(
        "builds", nargs="+", metavar="BUILD", help="llama-server's path, and flags in the same word"
    )
    parser.add_argument("--slower", type=float, default=0.05, help="the loss to look for, as a share")
    parser.add_argument("--rounds", type=int, default=3, help="of a step's first try")
    parser.add_argument("--most-rounds", type=int, default=24)
    parser.add_argument("--bench", default="-n 512", help="options of ggbench bench, e.g. '-d 8k -t 8'")
    asked = parser.parse_args()
    if len(asked.builds) < 2:
        parser.error("give at least two builds")
    good, slow = 0, len(asked.builds)
    at = slow - 1  # the newest first: usually it is known to be slower
    while slow - good > 1:
        step = compare(asked, asked.builds[0], asked.builds[at])
        say(f"build {at + 1} of {len(asked.builds)}, {asked.builds[at]}: {step.text}")
        if step.verdict in ("undecided", "does not run"):
            return 1 if step.verdict == "undecided" else 6
        good, slow = (good, at) if step.verdict == "slower" else (at, slow)
        at = (good + slow) // 2
    if slow == len(asked.builds):
        say("no build is slower than the first")
    else:
        say(
            f"the first slower build is {slow + 1}, {asked.builds[slow]}; the one before it is {asked.builds[good]}"
        )
    return 0


def compare(asked: argparse.Namespace, first: str, other: str) -> Step:
    """Measure two builds in turns until the ratio of their speeds is decided."""
    rounds, step = asked.rounds, Step("undecided", 1.0, 0.0, float("inf"))
    while step.verdict == "undecided" and rounds <= asked.most_rounds:
        engines = [f"--engine=llama-server={build}" for build in (first, other)]
        words = ["bench", asked.model, *asked.bench.split(), "-r", str(rounds), *engines, "--json", "--quiet"]
        ran = subprocess.run(
            [sys.executable, "-P", "-m", "ggbench", *words],
            cwd=_ROOT,
            stdout=subprocess.PIPE,
            check=False,
            text=True,
        )
        if not ran.stdout.strip():
            return step._replace(verdict="does not run")
        step = judge(json.loads(ran.stdout), asked.slower)
        rounds *= 2
    return step


def judge(document: dict[str, Any], slower: float) -> Step:
    """Return the verdict of `ggbench compare`'s document on the second build's speed."""
    speed = next(each for each in document["metrics"] if each["metric"] == "tok_s")
    found = speed["versus"][1]
    if found is None or found["ratio_ci95"] is None:
        return Step("undecided", 1.0, 0.0, float("inf"))
    low, high = found["ratio_ci95"]
    verdict: Verdict = "slower" if high < 1 else "as fast" if low > 1 - slower else "undecided"
    return Step(verdict, found["ratio"], low, high)


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
