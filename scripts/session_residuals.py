"""Sessions beside what is predicted from this machine's own decodes and prompts.

In each round ggbench's own llama.cpp decodes at depths and reads prompts of several lengths, and each engine takes the
session; a figure is the median over the rounds, an interval that of the median round. `within` is the share of waits
and answers in the intervals predicted, `apart` the largest ratio of a sum to the same in another round: what a machine
does not repeat, no prediction can meet. Exit code 1 where the sum or the last wait is off by more than 15 %, or fewer
than 90 % are within.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from ggbench.commands.measure_options import run_by
from ggbench.engines.llama.config import LlamaConfig
from ggbench.expect.session_cache import cached_tokens
from ggbench.expect.session_time import turn_times
from ggbench.experiments.decode.record import DecodeSettings
from ggbench.experiments.prefill.record import PrefillSettings
from ggbench.experiments.session.record import SessionResult, SessionSettings
from ggbench.models.reference import parse_model
from ggbench.models.targets import Target, materialize, resolve_one
from ggbench.runs.driver import run_job
from ggbench.runs.experiment import Job, experiment_of
from ggbench.runs.progress import Finished
from ggbench.runs.run import Run, Settings
from ggbench.runs.session import RunContext, run_context
from ggbench.show.names import quant_name
from ggbench.stats.samples import Floats
from ggbench.stats.speed_curve import SpeedCurve

AIM, WITHIN = 0.15, 0.9


def main() -> int:
    """Measure each model with each engine, and print a row of the table for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", help="MODEL:QUANT, or a file")
    parser.add_argument("--engine", action="append", default=[], help="as --engine of ggbench session")
    parser.add_argument("--workload", default="chat")
    parser.add_argument("--turns", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    settings = SessionSettings(asked.workload, asked.turns)
    print("| model | engine | sum | predicted | last wait | predicted | within | apart |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    is_good, context = True, run_context(None, needs_bandwidth=False)
    for model in asked.models:
        target = resolve_one(parse_model(model))
        file = materialize(target, lambda done, total: None)
        setups = [run_by(engine, LlamaConfig()) for engine in asked.engine or ["llama"]]
        predicted: list[list[Floats]] = [[] for _ in setups]
        taken: list[list[Run]] = [[] for _ in setups]
        for _ in range(asked.rounds):
            curve = _curve(context, target, settings)
            for setup, times, runs in zip(setups, predicted, taken, strict=True):
                found = turn_times([curve], settings.session, cached_tokens(settings.session, file, setup))
                assert found is not None and found.waits_s is not None
                times.append(np.hstack([found.waits_s, found.answers_s]))
                runs.append(_run(context, target, setup, settings))
        for runs, times in zip(taken, predicted, strict=True):
            is_good &= _compare(runs, times)
    return 0 if is_good else 1


def _compare(runs: Sequence[Run], predicted: Sequence[Floats]) -> bool:
    """Print the row of a session, and return whether it took what was predicted."""
    rounds = np.array(list(map(_measured, runs)))
    measured, (expected, low, high) = np.median(rounds, axis=0), np.median(predicted, axis=0)
    last = len(measured) // 2 - 1
    within, sums = np.mean((low <= measured) & (measured <= high)), rounds.sum(axis=1)
    print(
        f"| {quant_name(runs[0].subject)} | {runs[0].setup.program} | {measured.sum():.1f} s | {expected.sum():.1f} s "
        f"| {measured[last]:.2f} s | {expected[last]:.2f} s | {within:.0%} | {sums.max() / sums.min():.2f} |",
        flush=True,
    )
    for each in zip(measured, expected, low, high, rounds.T, strict=True):
        print("{:.2f} s, predicted {:.2f} ({:.2f}–{:.2f}); {}".format(*each), file=sys.stderr)
    errors = expected.sum() / measured.sum() - 1, expected[last] / measured[last] - 1
    return bool(max(map(abs, errors)) <= AIM and within >= WITHIN)


def _measured(run: Run) -> list[float]:
    """Return the seconds of each wait and then of each answer."""
    found = run.result
    assert isinstance(found, SessionResult)
    return [turn.wait_ns / 1e9 for turn in found.turns] + [turn.answer_ns / 1e9 for turn in found.turns]


def _curve(context: RunContext, target: Target, settings: SessionSettings) -> SpeedCurve:
    """Return what a decode at depths and prompts show, up to the session's length."""
    end, setup = settings.n_ctx_needed, LlamaConfig()
    places = (end // 4, end // 2, end - 64)
    decode = _run(context, target, setup, DecodeSettings(64, depths=places, repeat=2))
    prompts = _run(context, target, setup, PrefillSettings(places, 3))
    found, read = (experiment_of(run.head.kind).speed_of(run) for run in (decode, prompts))
    assert found is not None and read is not None
    return replace(found, prefill_ms=read.prefill_ms)


def _run(context: RunContext, target: Target, setup: LlamaConfig, settings: Settings) -> Run:
    kind = type(settings).__name__.removesuffix("Settings").lower()
    *_, end = run_job(context, Job(experiment_of(kind), target, setup, settings))
    assert isinstance(end, Finished)
    if end.error is not None:
        raise end.error
    return end.run


if __name__ == "__main__":
    sys.exit(main())
