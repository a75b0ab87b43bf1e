"""Sessions beside what is predicted from this machine's own decodes and prompts.

ggbench's own llama.cpp decodes at depths and reads prompts of several lengths, in turns; then each engine takes the
session twice. `within` is the share of the first one's waits and answers in the intervals predicted, `again` that of
the second within 10 % of the first: where a machine does not repeat itself, no prediction can. Exit code 1 where the
sum or the last wait is off by more than 15 %, or fewer than 90 % are within.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from ggbench.commands.measure_options import run_by
from ggbench.engines.llama.config import LlamaConfig
from ggbench.expect.session_cache import cached_tokens
from ggbench.expect.session_time import TurnTimes, turn_times
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
from ggbench.stats.intervals import Estimate
from ggbench.stats.speed_curve import SpeedCurve

AIM, WITHIN, ALIKE = 0.15, 0.9, 0.1


def main() -> int:
    """Measure each model with each engine, and print a row of the table for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", help="MODEL:QUANT, or a file")
    parser.add_argument("--engine", action="append", default=[], help="as --engine of ggbench session")
    parser.add_argument("--workload", default="chat")
    parser.add_argument("--turns", type=int)
    asked = parser.parse_args()
    settings = SessionSettings(asked.workload, asked.turns)
    print("| model | engine | sum | predicted | last wait | predicted | within | again |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    is_good, context = True, run_context(None, needs_bandwidth=False)
    for model in asked.models:
        target = resolve_one(parse_model(model))
        file = materialize(target, lambda done, total: None)
        curve = _curve(context, target, settings)
        for engine in asked.engine or ["llama"]:
            setup = run_by(engine, LlamaConfig())
            n_cached = cached_tokens(settings.session, file, setup)
            predicted = turn_times([curve], settings.session, n_cached)
            assert predicted is not None
            is_good &= _compare([_run(context, target, setup, settings) for _ in range(2)], predicted)
    return 0 if is_good else 1


def _compare(runs: Sequence[Run], predicted: TurnTimes) -> bool:
    """Print the row of a session that was taken twice, and return whether the first is as good as it should be."""
    assert predicted.waits_s is not None
    waits, answers = (
        [Estimate(*ends) for ends in each.T.tolist()] for each in (predicted.waits_s, predicted.answers_s)
    )
    expected = [*waits, *answers]
    first, second = (_measured(run) for run in runs)
    (measured_s, last_s), total_s = first, sum(each.value for each in expected)
    within = _share(each.low <= s <= each.high for each, s in zip(expected, measured_s, strict=True))
    again = _share(abs(s / before - 1) <= ALIKE for before, s in zip(measured_s, second[0], strict=True))
    print(
        f"| {quant_name(runs[0].subject)} | {runs[0].setup.program} | {sum(measured_s):.1f} s | {total_s:.1f} s "
        f"| {last_s:.2f}, {second[1]:.2f} s | {waits[-1].value:.2f} s | {within:.0%} | {again:.0%} |",
        flush=True,
    )
    for each, s in zip(expected, measured_s, strict=True):
        print(f"{s:.2f} s, predicted {each.value:.2f} ({each.low:.2f}–{each.high:.2f})", file=sys.stderr)
    errors = total_s / sum(measured_s) - 1, waits[-1].value / last_s - 1
    return max(map(abs, errors)) <= AIM and within >= WITHIN


def _measured(run: Run) -> tuple[list[float], float]:
    """Return the seconds of each wait and of each answer, and of the last wait."""
    found = run.result
    assert isinstance(found, SessionResult)
    waits = [turn.wait_ns / 1e9 for turn in found.turns]
    return [*waits, *(turn.answer_ns / 1e9 for turn in found.turns)], waits[-1]


def _share(held: Iterable[bool]) -> float:
    return statistics.fmean(map(float, held))


def _curve(context: RunContext, target: Target, settings: SessionSettings) -> SpeedCurve:
    """Return what a decode at depths and prompts show, up to the session's length."""
    end, setup = settings.n_ctx_needed, LlamaConfig()
    places = sorted({min(512, end // 2), end // 4, end // 2, end - 64})
    decode = _run(context, target, setup, DecodeSettings(64, depths=tuple(places), repeat=4))
    prompts = _run(context, target, setup, PrefillSettings(tuple(places), 8))
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
