"""What to do about a run that ended badly, in one line."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import StoreError
from ggbench.models.targets import Target
from ggbench.runs.experiment import FoundSetup, Job, experiment_of
from ggbench.runs.run import DecodeTiming, Run
from ggbench.runs.store.database import Store
from ggbench.text import sanitize
from ggbench.units import KV_CELLS, format_percent

_LOW_W = 0.1
"""Share of its limit below which W is worth a search for other settings."""


def hint_for(job: Job, run: Run, *, is_searched: bool = False) -> str:
    """The hint; empty where nothing can be done. `is_searched` says that the largest context was looked for as well."""
    if not job.setup.loads_file:
        is_wrong = run.outcome in (Outcome.FAILED, Outcome.CRASHED, Outcome.TIMED_OUT)
        return _known(job, run) if is_wrong else ""
    match run.outcome:
        case Outcome.OUT_OF_MEMORY:
            return _less_memory(job, run, is_searched)
        case Outcome.TIMED_OUT:
            return "" if "--timeout" in run.reason else "--timeout gives the worker longer"
        case Outcome.FAILED:
            return _known(job, run)
        case Outcome.CRASHED if "CUDA error" in run.reason:
            return "the driver may be too old for this build of llama.cpp, or the build not for this GPU"
        case Outcome.CRASHED:
            return (
                "what was measured before is kept; try another quant: if it works, download this file again, "
                f"if it crashes too, report the crash to {job.setup.program}"
            )
    return ""


def _known(job: Job, run: Run) -> str:
    """What the engine knows of such a failure; empty where it knows nothing."""
    return next((hint for words, hint in job.setup.failure_hints.items() if words in run.reason), "")


def tuning_hint(jobs: Sequence[Job], runs: Sequence[Run]) -> str:
    """Where W is far below its limit, the command that searches for better settings; empty where it is nowhere.

    With flash attention on a CPU W has been 4 % of its limit, and other settings three times as fast
    (scripts/EVIDENCE.md).
    """
    slow = [
        (job, run)
        for job, run in zip(jobs, runs, strict=True)
        if isinstance(run.result, DecodeTiming) and (run.result.w_ratio or 1.0) < _LOW_W and job.setup.loads_gguf
    ]
    if not slow:
        return ""
    job, run = slow[0]
    assert isinstance(run.result, DecodeTiming)
    target = job.target
    others = f" and {len(slow) - 1} more" if len(slow) > 1 else ""
    share = format_percent(run.result.w_ratio)
    what = f"W of {target.quant}{others} is {share} of what the memory's bandwidth allows"
    tuned = _found_settings(target)
    if tuned and tuned.of(run.head.setup) != run.head.setup:
        return f"{what}: --tuned takes the settings that run {tuned.run_id} found"
    if tuned:
        return ""
    tune = experiment_of("tune")
    search = tune.command(Job(tune, target, LlamaConfig(), tune.settings_type()))
    return f"{what}: {sanitize(search)} looks for faster settings"


def _found_settings(target: Target) -> FoundSetup | None:
    with contextlib.suppress(StoreError), Store.open() as store:
        found = experiment_of("tune").find_setup(store, target)
        return None if found is None or found.stale else found
    return None


def _less_memory(job: Job, run: Run, is_searched: bool) -> str:
    setup, environment = run.head.setup, run.head.environment
    has_gpu = bool(environment and environment.gpus) or any(not each.is_host for each in run.memory.buffers)
    needs_less = setup.less_memory(has_gpu=has_gpu, has_context=bool(run.memory.buffers))
    # Without a buffer not even the weights fitted, and a search tries no smaller context than this.
    n_ctx = setup.n_ctx or run.head.settings.n_ctx_needed
    if is_searched or not run.memory.buffers or (n_ctx or 0) <= KV_CELLS:
        return needs_less
    maxctx = experiment_of("maxctx")
    search = maxctx.command(Job(maxctx, job.target, setup.as_asked(), maxctx.settings_type()))
    return f"{sanitize(search)} finds the n_ctx that fits; {needs_less}"
