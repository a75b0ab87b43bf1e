"""Forecasts beside what the whole model then takes, as the Markdown table of the README.

Of each case the file, or a twin of all layers, is loaded three times, once before the forecast and twice after it, as
machines drift; each time it is timed near the beginning, behind 4,096 tokens and over a prompt of 512. Medians count.
On a shared machine only a table made while nothing else runs is meaningful. Exit code 1 where any figure is off by more
than its aim: 10 % of B and of a step at 4,096, 15 % of a prompt.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from ggbench.engines.contract import DecodeAtDepth, Engine, Prefill, Source, Workload
from ggbench.engines.endings import Completed
from ggbench.engines.events import PromptRead, Steps
from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.forecast.measure import EXPERIMENT
from ggbench.experiments.forecast.record import ForecastResult, ForecastSettings
from ggbench.models.reference import parse_model
from ggbench.models.targets import Target, materialize, resolve_one
from ggbench.runs.driver import run_job
from ggbench.runs.experiment import Job
from ggbench.runs.progress import Finished
from ggbench.runs.session import RunContext, run_context
from ggbench.stats.intervals import Expected
from ggbench.stats.speed_estimate import inverse

CASES = tuple(f"twin:qwen1.5-{size}:{quant}" for size in ("0.5b", "1.8b", "7b") for quant in ("q4_k_m", "q8_0"))
N_DEPTH, N_PROMPT, LOADS = 4096, 512, 3
AIMS = {"B": 0.10, "at 4,096": 0.10, "prompt of 512": 0.15}


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a case, in ms."""

    name: str
    expected: Expected
    measured: float

    @property
    def error(self) -> float:
        """Share by which the forecast is off."""
        return self.expected.value / self.measured - 1

    @property
    def is_within(self) -> bool:
        """Whether the interval holds what was measured."""
        return self.expected.low <= self.measured <= self.expected.high


def main() -> int:
    """Forecast and measure each case, and print a row of the table for each figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=CASES, help="MODEL:QUANT, or files")
    parser.add_argument("--remove", action="store_true", help="delete the twins of all layers that this writes")
    asked = parser.parse_args()
    print("| model | figure | forecast ms | measured ms | off by | within its interval |")
    print("|---|---|---:|---:|---:|---|")
    found: list[Figure] = []
    for model in asked.models:
        target, rig = resolve_one(parse_model(model)), run_context(None, needs_bandwidth=False)
        was_there = target.path is not None
        path = materialize(target).paths[0]
        before = _measured_ms(rig, path)
        result = _forecast(rig, target)
        figures = _figures(result, [before, *(_measured_ms(rig, path) for _ in range(LOADS - 1))])
        for each in figures:
            print(
                f"| {target.model} {target.quant} | {each.name} | {each.expected.value:.1f} "
                f"({each.expected.low:.1f}–{each.expected.high:.1f}) | {each.measured:.1f} | {each.error:+.1%} | "
                f"{'yes' if each.is_within else 'no'} |",
                flush=True,
            )
        if asked.remove and not was_there:
            path.unlink()
        found += figures
    n_within = sum(each.is_within for each in found)
    print(f"\n{n_within} of {len(found)} within their intervals; worst {max(abs(each.error) for each in found):.1%}")
    return 0 if all(abs(each.error) <= AIMS[each.name] for each in found) else 1


def _forecast(rig: RunContext, target: Target) -> ForecastResult:
    *_, end = run_job(rig, Job(EXPERIMENT, target, LlamaConfig(), ForecastSettings()))
    assert isinstance(end, Finished)
    if end.error is not None:
        raise end.error
    assert isinstance(end.run.result, ForecastResult)
    return end.run.result


def _figures(result: ForecastResult, measured: Sequence[tuple[float, float, float]]) -> list[Figure]:
    expected = (result.b_ms, inverse(dict(result.tok_s)[N_DEPTH]), dict(result.prefill_ms)[N_PROMPT])
    return [
        Figure(name, each, statistics.median(ms))
        for name, each, ms in zip(AIMS, expected, zip(*measured, strict=True), strict=True)
        if each is not None
    ]


def _measured_ms(rig: RunContext, path: Path) -> tuple[float, float, float]:
    """A step near the beginning, one behind the long context, and a prompt, of one load of the whole model."""
    setup = replace(LlamaConfig(), threads=rig.threads, n_ctx=N_DEPTH + 256)
    with contextlib.closing(rig.launch(setup, rig.cancel)) as engine:
        *_, ending = engine.open(Source(path), setup)
        assert ending == Completed(), ending
        near, far = (_step_ms(engine, DecodeAtDepth(n_depth, 8)) for n_depth in (1, N_DEPTH))
        prompts = [event for event in engine.run(Prefill(N_PROMPT, 1, 1)) if isinstance(event, PromptRead)]
    return near, far, prompts[0].elapsed_ns / 1e6


def _step_ms(engine: Engine, workload: Workload) -> float:
    (steps,) = (event for event in engine.run(workload) if isinstance(event, Steps))
    return statistics.median(steps.step_ns) / 1e6


if __name__ == "__main__":
    sys.exit(main())
