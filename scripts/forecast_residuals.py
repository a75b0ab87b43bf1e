"""Forecasts beside what the whole model then takes, as the Markdown table of EVIDENCE.md.

Of each case the file, or a twin of all layers, is loaded three times, once before the forecast and twice after it, as
machines drift; each time it is timed near the beginning, behind 4,096 tokens and over a prompt of 512. Medians count.
On a shared machine only a table made while nothing else runs is meaningful. Exit code 1 where any figure is off by more
than its aim: 10 % of B and of a step at 4,096, 15 % of a prompt.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence

from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.forecast.measure import EXPERIMENT
from ggbench.experiments.forecast.record import ForecastResult, ForecastSettings
from ggbench.models.targets import Target
from ggbench.runs.driver import run_job
from ggbench.runs.experiment import Job
from ggbench.runs.progress import Finished
from ggbench.runs.session import RunContext, run_context
from ggbench.stats.speed_curve import inverse
from scripts.whole_models import LOADS, N_DEPTH, N_PROMPT, Residual, make_parser, measure_ms, on_disk

CASES = tuple(f"twin:qwen1.5-{size}:{quant}" for size in ("0.5b", "1.8b", "7b") for quant in ("q4_k_m", "q8_0"))
AIMS = {"B": 0.10, "at 4,096": 0.10, "prompt of 512": 0.15}


def main() -> int:
    """Forecast and measure each case, and print a row of the table for each time."""
    asked = make_parser(__doc__, CASES).parse_args()
    print("| model | figure | forecast ms | measured ms | off by | within its interval |")
    print("|---|---|---:|---:|---:|---|")
    found: list[Residual] = []
    for model in asked.models:
        with on_disk(model, remove=asked.remove) as (target, path):
            context = run_context(None, needs_bandwidth=False)
            before = measure_ms(context, path)
            result = _forecast(context, target)
            for each in _residuals(result, [before, *(measure_ms(context, path) for _ in range(LOADS - 1))]):
                each.show(f"{target.model} {target.quant}")
                found.append(each)
    n_within = sum(each.is_within for each in found)
    print(
        f"\n{n_within} of {len(found)} within their intervals; worst {max(abs(each.error) for each in found):.1%}"
    )
    return 0 if all(abs(each.error) <= AIMS[each.name] for each in found) else 1


def _forecast(context: RunContext, target: Target) -> ForecastResult:
    *_, end = run_job(context, Job(EXPERIMENT, target, LlamaConfig(), ForecastSettings()))
    assert isinstance(end, Finished)
    if end.error is not None:
        raise end.error
    assert isinstance(end.run.result, ForecastResult)
    return end.run.result


def _residuals(result: ForecastResult, measured: Sequence[tuple[float, float, float]]) -> list[Residual]:
    expected = (result.b_ms, inverse(dict(result.tok_s)[N_DEPTH]), dict(result.prefill_ms)[N_PROMPT])
    return [
        Residual(name, each, statistics.median(ms))
        for name, each, ms in zip(AIMS, expected, zip(*measured, strict=True), strict=True)
        if each is not None
    ]


if __name__ == "__main__":
    sys.exit(main())
