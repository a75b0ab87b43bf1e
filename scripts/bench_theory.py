"""The timings behind scripts/bench_theory: best and median of each, against what it may take; exit code 1 above it."""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from ggbench.gguf_file.layout import build_model
from ggbench.machine.description import parse_gpus
from ggbench.models.catalog import load_catalog
from ggbench.sizing.theory.kv_cache import kv_cache
from ggbench.sizing.theory.limits import PrefillLimit, hardware_of
from ggbench.sizing.theory.weights import count_parameters, uniform_weights

ROOT = Path(__file__).parent.parent
CURVE_MS, PROCESS_MS = 50.0, 400.0
LONGEST = 131_072
QUANTS = ("q8_0", "q6_k", "q5_k_m", "q5_0", "q4_k_m", "q4_0", "q3_k_m", "q2_k")
CALLS = (
    ("qwen1.5-7b", "--gpu", "rtx-4090", "--json"),
    ("qwen1.5-7b", "q4_k_m", "--gpu", "rtx-4090"),
    ("qwen1.5-7b", *QUANTS, "--gpu", "rtx-4090"),
    ("qwen1.5-110b", *QUANTS, "--gpu", "rtx-4090"),
    ("qwen2-57b-a14b", "w16", "w4", "--gpu", "h100-sxm", "--why"),
)


def main() -> int:
    """Times everything and prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=7, help="timings of each (default: 7)")
    repeat = parser.parse_args().repeat
    print(f"load {os.getloadavg()[0]:.2f} on {os.cpu_count()} CPUs; best and median of {repeat}")
    ok = [report("prefill curve, 131,072 lengths, with its knees", timed(curve_work(), repeat), CURVE_MS)]
    ok += [
        report("limits " + " ".join(call), timed(functools.partial(run, call), repeat), PROCESS_MS)
        for call in CALLS
    ]
    return 0 if all(ok) else 1


def curve_work() -> Callable[[], None]:
    """Computes one curve with its knees, as `limits` does."""
    model = build_model(load_catalog().model("qwen1.5-7b").hyper, "qwen1.5-7b")
    weights, kv = uniform_weights(count_parameters(model), 16), kv_cache(model)
    hardware = hardware_of(parse_gpus("rtx-4090")[0])
    bandwidth, compute = hardware.bandwidth_bytes_per_s, hardware.compute_flop_per_s
    assert bandwidth is not None and compute is not None

    def work() -> None:
        knees = PrefillLimit(weights, kv, bandwidth, compute, LONGEST).knees()
        assert knees == (113, 481), knees

    return work


def run(call: tuple[str, ...]) -> None:
    """One `ggbench limits` as a whole process, its bytecode kept as on a person's machine."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-P", "-m", "ggbench", "limits", *call]
    subprocess.run(command, cwd=ROOT, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def timed(work: Callable[[], None], repeat: int) -> list[float]:
    """Milliseconds of each repetition, a first one left out."""
    work()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def report(name: str, times: list[float], limit_ms: float) -> bool:
    """Prints one line; whether the best is within the limit, since other programs can only add to it."""
    best = min(times)
    within = best <= limit_ms
    verdict = "" if within else "  TOO LONG"
    print(f"{best:8.1f} {statistics.median(times):8.1f} ms  of {limit_ms:.0f}  {name}{verdict}")
    return within


if __name__ == "__main__":
    sys.exit(main())
