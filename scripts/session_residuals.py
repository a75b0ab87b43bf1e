"""Sessions beside what is predicted from this machine's own decodes and prompts.

ggbench's own llama.cpp decodes at depths and reads prompts of several lengths, then each engine takes the session. Only
a table made while nothing else runs is meaningful. Exit code 1 where the sum or the last wait is off by more than 15 %,
or fewer than 90 % of the waits and answers are in their intervals.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from msgspec.structs import replace

from ggbench.commands.measure_options import run_by
from ggbench.engines.llama.config import LlamaConfig
from ggbench.expect.session_cache import cached_tokens
from ggbench.expect.session_time import TurnTime, turn_times
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
from ggbench.stats.speed_curve import SpeedCurve

AIM, WITHIN = 0.15, 0.9


def main() -> int:
    """Measure each model with each engine, and print a row of the table for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", help="MODEL:QUANT, or a file")
    parser.add_argument("--engine", action="append", default=[], help="as --engine of ggbench session")
    parser.add_argument("--workload", default="chat")
    parser.add_argument("--turns", type=int)
    asked = parser.parse_args()
    settings = SessionSettings(asked.workload, asked.turns)
    print("| model | engine | sum | predicted | last wait | predicted | within |")
    print("|---|---|---:|---:|---:|---:|---:|")
    is_good, context = True, run_context(None, needs_bandwidth=False)
    for model in asked.models:
        target = resolve_one(parse_model(model))
        file = materialize(target, lambda done, total: None)
        curve = _curve(context, target, settings)
        for engine in asked.engine or ["llama"]:
            setup = run_by(engine, LlamaConfig())
            n_cached = cached_tokens(settings.session, file, setup)
            predicted = turn_times([curve], settings.session, n_cached)
            is_good &= _compare(_run(context, target, setup, settings), predicted)
    return 0 if is_good else 1


def _compare(run: Run, predicted: Sequence[TurnTime]) -> bool:
    """Print the row of a run, and return whether it is as good as it should be."""
    measured = run.result
    assert isinstance(measured, SessionResult)
    waits = [each.wait_s for each in predicted if each.wait_s is not None]
    answers = [each.answer_s for each in predicted]
    pairs = [*zip(waits, [turn.wait_ns / 1e9 for turn in measured.turns], strict=True)]
    total, last = sum(each.value for each in (*waits, *answers)), waits[-1].value
    pairs += zip(answers, [turn.answer_ns / 1e9 for turn in measured.turns], strict=True)
    within = sum(each.low <= seconds <= each.high for each, seconds in pairs) / len(pairs)
    print(
        f"| {quant_name(run.subject)} | {run.setup.program} | {measured.elapsed_s:.1f} s | {total:.1f} s "
        f"| {measured.last_wait_s:.2f} s | {last:.2f} s | {within:.0%} |",
        flush=True,
    )
    errors = total / measured.elapsed_s - 1, last / measured.last_wait_s - 1
    return max(map(abs, errors)) <= AIM and within >= WITHIN


def _curve(context: RunContext, target: Target, settings: SessionSettings) -> SpeedCurve:
    """Return what a decode at depths and prompts show, up to the session's length."""
    end, setup = settings.n_ctx_needed, LlamaConfig()
    places = sorted({min(512, end // 2), end // 4, end // 2, end - 64})
    decode = _run(context, target, setup, DecodeSettings(64, depths=tuple(places), repeat=2))
    prompts = _run(context, target, setup, PrefillSettings(tuple(places), 1))
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
