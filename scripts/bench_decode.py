"""Decode latency of `ggbench decode --quiet` beside llama-bench's: same file, same depth, alternating.

llama-bench is built from the llama.cpp that llama-cpp-python carries, so both run the same code. It keeps one number
for a repetition, its mean; so means are compared. One core is left free by default, for the rest of the machine and
ggbench's own process. On a shared machine only the ratio is meaningful. Exit code 1 where the median ratio is off by
more than 1 %.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from ggbench.catalog.selector import materialize, resolve_one
from ggbench.machine.cpu import default_threads
from ggbench.records.decode import N_PROMPT

AIM = 0.01


def main() -> int:
    """Run the pairs and print them with their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("llama_bench", type=Path, help="path of llama-bench")
    parser.add_argument("model", nargs="?", default="synth:qwen1.5-0.5b")
    parser.add_argument("quant", nargs="?", default="q4_k_m")
    parser.add_argument("-n", "--n-gen", type=int, default=128)
    parser.add_argument("-t", "--threads", type=int, default=max(1, default_threads() - 1))
    parser.add_argument("--pairs", type=int, default=9)
    asked = parser.parse_args()
    path = materialize(resolve_one(asked.model, asked.quant)).paths[0]
    print(f"{path.name}, {asked.n_gen} tokens at depth {N_PROMPT}, {asked.threads} threads; mean ms a token")
    print(f"{'pair':>4} {'ggbench':>9} {'llama-bench':>12} {'ratio':>8}")
    ratios = []
    for number in range(asked.pairs):
        ways = [_ggbench, _llama_bench] if number % 2 == 0 else [_llama_bench, _ggbench]
        found = {way: way(asked, path) for way in ways}
        ratios.append(found[_ggbench] / found[_llama_bench])
        print(f"{number + 1:4} {found[_ggbench]:9.3f} {found[_llama_bench]:12.3f} {ratios[-1]:8.4f}", flush=True)
    median = statistics.median(ratios)
    print(f"median ratio {median:.4f}, aim 1 ± {AIM}")
    return 0 if abs(median - 1) <= AIM else 1


def _ggbench(asked: argparse.Namespace, path: Path) -> float:
    command = [sys.executable, "-P", "-m", "ggbench", "decode", str(path), "-n", str(asked.n_gen)]
    with tempfile.TemporaryDirectory(prefix="ggbench-bench-decode-") as folder:
        answer = _run(
            [*command, "-t", str(asked.threads), "--bandwidth", "20GB/s", "--quiet", "--json"],
            {"XDG_DATA_HOME": folder},
        )
    return 1e3 / float(json.loads(answer)["tok_s"])


def _llama_bench(asked: argparse.Namespace, path: Path) -> float:
    command = [str(asked.llama_bench), "-m", str(path), "-p", "0", "-n", str(asked.n_gen), "-d", str(N_PROMPT)]
    answer = _run([*command, "-r", "1", "-t", str(asked.threads), "-fa", "auto", "-o", "json"], {})
    return float(json.loads(answer)[0]["avg_ns"]) / 1e6 / asked.n_gen


def _run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
