"""The comparison behind scripts/bench_maxctx; exit code 1 where the two ways end at different contexts.

Blind bisection knows nothing of the model: it doubles n_ctx from 256 until a context fails, then halves in steps of
256. Both ways run under the same limit, each in one worker that loads the model once, and neither decodes, so that what
differs is the contexts made. The seconds are of everything from the first worker's start to the last answer.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace

from ggbench.catalog.selector import Target, materialize, resolve_one
from ggbench.engine import protocol
from ggbench.engine.endings import Completed, Ending
from ggbench.engine.process import WorkerProcess
from ggbench.experiments.maxctx import EXPERIMENT
from ggbench.recording.driver import run_job
from ggbench.recording.experiment import Job
from ggbench.recording.progress import Finished
from ggbench.recording.rig import make_rig
from ggbench.records.context import ContextResult, ContextSettings
from ggbench.records.setup import KV_CELLS, LlamaSetup
from ggbench.units import parse_size

CASES = (
    ("synth:qwen1.5-0.5b", "q4_k_m", "1GiB"),
    ("synth:qwen1.5-0.5b", "q4_k_m", "3GiB"),
    ("synth:qwen1.5-0.5b", "q8_0", "2GiB"),
)


def main() -> int:
    """Run the cases, or the one on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", nargs="*", metavar="MODEL QUANT LIMIT")
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    cases = [tuple(asked.case)] if asked.case else CASES
    agree = True
    print(f"{'model':28} {'limit':>8} {'way':>18} {'n_ctx':>8} {'contexts':>9} {'seconds':>8}")
    for model, quant, limit in cases:
        target = resolve_one(model, quant)
        materialize(target)  # writing a twin is no part of the search
        setup = LlamaSetup(memory_limit_bytes=parse_size(limit), threads=asked.threads)
        results = {"maxctx": _maxctx(target, setup), "blind bisection": _bisection(target, setup)}
        for way, (n_ctx, n_contexts, seconds) in results.items():
            print(f"{f'{model} {quant}':28} {limit:>8} {way:>18} {n_ctx:8} {n_contexts:9} {seconds:8.1f}")
        agree &= len({n_ctx for n_ctx, _, _ in results.values()}) == 1
    return 0 if agree else 1


def _maxctx(target: Target, setup: LlamaSetup) -> tuple[int, int, float]:
    started = time.perf_counter()
    job = Job(EXPERIMENT, target, setup, ContextSettings(prove=False))
    *_, finished = run_job(make_rig(None, needs_bandwidth=False), job)
    assert isinstance(finished, Finished)
    if finished.error is not None:
        raise finished.error
    found = finished.run.result
    assert isinstance(found, ContextResult)
    return found.max_n_ctx or 0, found.n_allocations, time.perf_counter() - started


def _bisection(target: Target, setup: LlamaSetup) -> tuple[int, int, float]:
    file = materialize(target)
    started = time.perf_counter()
    with WorkerProcess() as worker:
        _ask(worker, protocol.LoadModel(str(file.paths[0]), setup))
        n_contexts = 0

        def works(steps: int) -> bool:
            nonlocal n_contexts
            n_contexts += 1
            return _ask(worker, protocol.MakeContext(replace(setup, n_ctx=steps * KV_CELLS))) == Completed()

        low, high = 0, 1
        while works(high):
            low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if works(middle) else (low, middle)
    return low * KV_CELLS, n_contexts, time.perf_counter() - started


def _ask(worker: WorkerProcess, request: protocol.Request) -> Ending:
    *_, last = worker.call(request)
    assert isinstance(last, Ending)
    return last


if __name__ == "__main__":
    sys.exit(main())
