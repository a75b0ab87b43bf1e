"""The table behind scripts/compare_batched_bench; exit code 1 where any surely differs by more than 2 %.

llama-batched-bench is started with the libraries that ggbench loads, since two builds of one source differ in speed;
the two take turns in going first. Both have the same threads, batch sizes, flash attention and cache types, ggbench's
defaults. llama-batched-bench makes one context for its largest batch, of as many cells for each sequence as
ggbench's context of each case has. On a shared machine prompts of a second differ by some 3 % from round to round, so
the paired differences of many rounds count, with their standard error.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path

from ggbench.catalog.selector import materialize, resolve_one
from ggbench.engine.llama_model import llama_library
from ggbench.experiments.speed import EXPERIMENT
from ggbench.machine.cpu import default_threads
from ggbench.recording.driver import run_job
from ggbench.recording.experiment import Job
from ggbench.recording.progress import Finished
from ggbench.recording.rig import make_rig
from ggbench.records.setup import LlamaSetup
from ggbench.records.speed_cases import SpeedResult, SpeedSettings

MODEL = "synth:qwen1.5-0.5b:q4_k_m"
TOLERANCE = 0.02
Speeds = dict[int, tuple[float, float]]
"""Tokens per second of prefill and of decode, by the number of sequences."""


def main() -> int:
    """Measure in turns, and compare the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bench", type=Path, help="llama-batched-bench, of the same llama.cpp as ggbench's")
    parser.add_argument("model", nargs="?", default=MODEL, help="a file, or synth:ID:QUANT")
    parser.add_argument("--input", type=int, default=512)
    parser.add_argument("-n", "--n-gen", type=int, default=64)
    parser.add_argument("--batch", default="1,4,8")
    parser.add_argument("--rounds", type=int, default=11)
    asked = parser.parse_args()
    batches = tuple(int(part) for part in asked.batch.split(","))
    settings = SpeedSettings((asked.input,), asked.n_gen, batches, within_s=None)
    rounds: list[tuple[Speeds, Speeds]] = []
    for number in range(asked.rounds):
        if number % 2:
            theirs = by_batched_bench(asked.bench, asked.model, settings)
            rounds.append((by_ggbench(asked.model, settings), theirs))
        else:
            ours = by_ggbench(asked.model, settings)
            rounds.append((ours, by_batched_bench(asked.bench, asked.model, settings)))
        print(f"round {number + 1}: ggbench {rounds[-1][0]}, llama-batched-bench {rounds[-1][1]}", flush=True)
    print("| batch | | ggbench | llama-batched-bench | medians differ by | paired difference |")
    print("|---:|---|---:|---:|---:|---:|")
    agree = True
    for n_seqs in batches:
        for index, name in enumerate(("S_PP", "S_TG")):
            ours, theirs = (statistics.median(each[who][n_seqs][index] for each in rounds) for who in (0, 1))
            ratios = [each[0][n_seqs][index] / each[1][n_seqs][index] for each in rounds]
            mean = statistics.fmean(ratios) - 1
            error = statistics.stdev(ratios) / math.sqrt(len(ratios))
            agree &= abs(mean) - 2 * error <= TOLERANCE
            by = f"{ours / theirs - 1:+.1%} | {mean:+.1%} ±{error:.1%}"
            print(f"| {n_seqs} | {name} | {ours:.2f} | {theirs:.2f} | {by} |")
    return 0 if agree else 1


def by_ggbench(model: str, settings: SpeedSettings) -> Speeds:
    """Run one job as `ggbench speed` does."""
    job = Job(EXPERIMENT, resolve_one(model), LlamaSetup(n_gpu_layers=0), settings)
    *_, finished = run_job(make_rig(None, needs_bandwidth=False), job)
    assert isinstance(finished, Finished)
    if not isinstance(finished.run.result, SpeedResult):
        sys.exit(finished.run.reason)
    found = finished.run.result.cases
    return {each.case.n_seqs: (each.prefill_tok_s or 0.0, each.decode_tok_s or 0.0) for each in found}


def by_batched_bench(bench: Path, model: str, settings: SpeedSettings) -> Speeds:
    """Run llama-batched-bench over the same cases."""
    threads = str(default_threads())
    n_ctx = max(case.n_ctx for case in settings.cases)
    command: list[str | Path] = [
        bench, "-m", materialize(resolve_one(model)).paths[0], "-c", str(n_ctx), "-b", "2048", "-ub", "512",
        "-npp", str(settings.inputs[0]), "-ntg", str(settings.n_gen), "-npl", ",".join(map(str, settings.batches)),
        "-t", threads, "-tb", threads, "-ngl", "0", "-fa", "auto", "-ctk", "f16", "-ctv", "f16",
        "--output-format", "jsonl",
    ]  # fmt: skip
    environment = os.environ | {"LD_LIBRARY_PATH": str(llama_library().parent)}
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    rows = [json.loads(line) for line in ran.stdout.splitlines() + ran.stderr.splitlines() if line.startswith("{")]
    return {row["pl"]: (row["speed_pp"], row["speed_tg"]) for row in rows}


if __name__ == "__main__":
    sys.exit(main())
