"""The table of a model's quants: a decode of each and, where asked for, the search for its largest context."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence

from msgspec.structs import replace

from ggbench.decisions.known import expected_at, known_here
from ggbench.engines.contract import EngineConfig
from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import GgbenchError
from ggbench.gguf_file.model_file import ModelFile
from ggbench.machine.host import default_threads
from ggbench.models.targets import Target
from ggbench.runs.driver import run_job
from ggbench.runs.experiment import Job, experiment_of
from ggbench.runs.progress import Finished, Progress, Started
from ggbench.runs.session import RunContext
from ggbench.runs.summary import QuantSummary
from ggbench.sizing.budget import machine_budget
from ggbench.sizing.plan_record import PlannedForecast
from ggbench.stats.decode_timing import Bandwidth
from ggbench.stats.speed_estimate import SpeedEstimate


def run_bench(context: RunContext, decodes: Sequence[Job], *, maxctx: bool = False) -> Generator[Progress]:
    """Do one decode after another; with `maxctx`, search the same file and setup after each.

    A decode that ended in anything but a result of its own or too little memory is not followed by a search: that would
    meet the same end. The decode's own n_ctx is no ceiling of it.
    """
    for index, decode in enumerate(decodes):
        if context.cancel.is_set():
            return
        outcome: Outcome | None = None
        error: Exception | None = None
        with contextlib.closing(run_job(context, decode, index, len(decodes))) as progress:
            for record in progress:
                if isinstance(record, Finished):
                    outcome, error = record.run.outcome, record.error
                yield record
        searches = outcome in (Outcome.COMPLETED, Outcome.OUT_OF_MEMORY) and error is None
        if maxctx and searches and not context.cancel.is_set():
            yield from _search(context, decode.target, decode.setup)


def with_expected_speeds(
    summaries: Sequence[QuantSummary], targets: Sequence[Target], setup: LlamaConfig, bandwidth: Bandwidth | None
) -> list[QuantSummary]:
    """Return the summaries of the targets, those without a speed with the one that is known of their file.

    It is that in the middle of the decode that was asked for. Measures nothing.
    """
    files = [
        _header(target) if each.latency is None and target.own is None else None
        for each, target in zip(summaries, targets, strict=True)
    ]
    if not any(files):
        return list(summaries)
    budget = machine_budget(
        n_gpu_layers=setup.n_gpu_layers,
        main_gpu=setup.main_gpu,
        threads=default_threads(),
        reserve_bytes=None,
        bandwidth=bandwidth,
        measures=False,
    )
    known = known_here(files, setup, budget)
    return [replace(each, expected=_expected(each, speed)) for each, speed in zip(summaries, known, strict=True)]


def _header(target: Target) -> ModelFile | None:
    try:
        return target.header()
    except GgbenchError:
        return None


def _expected(summary: QuantSummary, known: SpeedEstimate | None) -> PlannedForecast | None:
    n_prompt, n_gen = summary.asked("n_prompt"), summary.asked("n_gen")
    return None if n_prompt is None or n_gen is None else expected_at(known, n_prompt + (n_gen + 1) // 2)


def _search(context: RunContext, target: Target, setup: EngineConfig) -> Generator[Progress]:
    maxctx = experiment_of("maxctx")
    search = Job(maxctx, target, setup.as_asked(), maxctx.settings_type())
    with contextlib.closing(run_job(context, search)) as progress:
        yield from (record for record in progress if not isinstance(record, Started))
