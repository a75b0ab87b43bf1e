"""Speed by input length and batch size, as defined by the published tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ggbench.engines.contract import BatchedDecode, EngineConfig, EstimateMemory, check_users
from ggbench.engines.endings import Cancelled, Completed, Ending, Outcome
from ggbench.engines.events import Memory
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import UsageError
from ggbench.experiments.speed.record import Case, CaseEnded, SpeedCase, SpeedResult, SpeedSettings
from ggbench.runs.experiment import Conclusion, Experiment
from ggbench.runs.progress import Measuring, PointMeasured, Working
from ggbench.runs.recording import PromptTiming, Recording
from ggbench.runs.run import Settings
from ggbench.runs.store.runs import WARMUP
from ggbench.stats.decode_timing import DepthSpeed, ServerFound
from ggbench.units import format_number

if TYPE_CHECKING:
    from ggbench.runs.run import Run
    from ggbench.runs.session import Session
    from ggbench.stats.requests import BatchSteps
    from ggbench.stats.speed_curve import SpeedCurve

_SERVER_BATCH = 512
"""Tokens of a physical batch, if unknown: llama-server's default."""


class SpeedExperiment(Experiment):
    """Load once, then measure the cases in turn, each in its own context; on a server, in those that it has."""

    kind = "speed"
    settings_type = SpeedSettings
    result_type = SpeedResult
    observed = (CaseEnded,)
    timeout_s = 3600.0
    """Far into a long prompt, a batch may take minutes on a CPU without a message."""

    def check(self, setup: EngineConfig, settings: Settings) -> None:
        super().check(setup, settings)
        if setup.n_ctx is not None:
            raise UsageError("speed sizes the context for each case", "omit --n-ctx")
        if isinstance(settings, SpeedSettings):
            check_users(setup, max(settings.batches))
            setup.check_holds(max(case.n_tokens for case in settings.cases))

    def measure(self, session: Session) -> Measuring[Conclusion]:
        """Measure every case; a failure does not stop the others, only cancelling does.

        Raises Unsupported for an engine that cannot decode several sequences, and DoesNotFit if no memory is free.
        """
        yield from session.prepare()
        cases, recording = session.settings(SpeedSettings).cases, session.recorder.recording
        obstacles = _obstacles(session, cases)
        ending = yield from session.open()  # without an n_ctx: the model alone
        if not isinstance(ending, Completed):
            return ending
        for number, case in enumerate(cases, 1):
            ended = CaseEnded(case, Outcome.OUT_OF_MEMORY, obstacles.get(case, ""))
            if not ended.reason:
                yield Working("prompt", text=f"case {number} of {len(cases)}: {case.name}")
                ended = yield from _run(session, case)
            if ended.outcome is Outcome.CANCELLED:
                return Cancelled()
            session.recorder.observe(ended)
            found = _figures(ended, recording)
            speed = f"{format_number(found.tok_s_qwen2_5)} tok/s as Qwen2.5 counts"
            yield PointMeasured(f"{case.name}: {found.why or speed}", found)
        return Completed()

    def reduce(self, recording: Recording) -> SpeedResult:
        from ggbench.stats.decode_timing import serving_of

        found = [_figures(each, recording) for each in recording.of(CaseEnded)]
        serving = serving_of(recording.last(ServerFound), recording.requests)
        return SpeedResult(tuple(sorted(found, key=lambda each: each.case)), serving)

    def speed_of(self, run: Run, n_seqs: int = 1) -> SpeedCurve | None:
        from ggbench.stats.speed_curve import measured_curve

        cases = run.result.cases if isinstance(run.result, SpeedResult) else ()
        depths = [
            DepthSpeed(each.case.n_input, each.case.n_gen, each.latency.tok_s, 1, each.latency.tok_s_ci95)
            for each in cases
            if each.case.n_seqs == n_seqs and each.latency is not None
        ]
        return measured_curve(run.run_id, depths, None, None, is_steady=not run.unsteady)


EXPERIMENT = SpeedExperiment()


def _obstacles(session: Session, cases: tuple[Case, ...]) -> Mapping[Case, str]:
    """Return why cases do not fit, as llama.cpp's allocator run dry says; empty texts for those that do.

    Linux overcommits, so a context in main memory would not fail to be created. Raises DoesNotFit if no memory is free.
    """
    from ggbench.show.words import said
    from ggbench.sizing.fit import free_fitter, obstacle

    setup, file = session.setup, session.file
    if file is None or setup.unsupported(EstimateMemory):
        return {}
    contexts = {case: LlamaConfig.of(_with_context(setup, case)) for case in cases}
    with free_fitter(
        lambda: session.context.launch(setup, session.cancel), file, LlamaConfig.of(setup)
    ) as fitter:
        return {case: said(obstacle(fitter, context)) for case, context in contexts.items()}


def _with_context(setup: EngineConfig, case: Case) -> EngineConfig:
    return setup.with_context(case.n_input + case.n_gen, case.n_seqs)


def _run(session: Session, case: Case) -> Measuring[CaseEnded]:
    """Make the case's context, warm up with a physical batch, since the first use of memory is slower, and decode."""
    setup, recording = _with_context(session.setup, case), session.recorder.recording
    n_warmup = min(case.n_input, -(-(setup.n_ubatch or _SERVER_BATCH) // case.n_seqs))
    timed = session.settings(SpeedSettings).cases
    n_total = sum(each.n_gen for each in timed)
    warmup = BatchedDecode(n_warmup, 1, case.n_seqs)
    steps = [
        session.run(warmup, f"{WARMUP}i{case.n_input}/b{case.n_seqs}"),
        session.run(BatchedDecode(case.n_input, case.n_gen, case.n_seqs), case.series, n_total),
    ]
    if setup.n_ctx is not None:
        steps.insert(0, session.open(setup))
    ending: Ending = Completed()
    for step in steps:
        ending = yield from step
        if not isinstance(ending, Completed):
            return CaseEnded(case, ending.outcome, ending.reason)
    timing, memory = recording.last(PromptTiming), recording.last(Memory)
    return CaseEnded(
        case,
        prefill_ns=None if timing is None else timing.elapsed_ns,
        memory_bytes=None if memory is None else memory.total_bytes,
    )


def _figures(ended: CaseEnded, recording: Recording) -> SpeedCase:
    """Return a finished case with its results, if it completed and all its prompts and steps were timed."""
    from ggbench.stats.speed import summarize_tokens

    case, steps = ended.case, recording.batch_steps(ended.case.series)
    times = None if steps is None else _times(ended, steps)
    if ended.outcome is not Outcome.COMPLETED or steps is None or times is None:
        return SpeedCase(ended)
    prefill_ns, whole_ns, n_read, n_generated = times
    return SpeedCase(
        ended,
        prefill_ms=prefill_ns / 1e6,
        latency=summarize_tokens(steps.times),
        prefill_tok_s=n_read * 1e9 / prefill_ns,
        decode_tok_s=steps.together_tok_s(case.n_seqs),
        tok_s_qwen2_5=n_generated * 1e9 / whole_ns,
        tok_s_qwen3=(n_read + n_generated) * 1e9 / whole_ns,
    )


def _times(ended: CaseEnded, steps: BatchSteps) -> tuple[int, int, int, int] | None:
    """Return the ns of the prefill and of the whole case, and the tokens read and generated; None if not all are known.

    On a server by the client's clock, without the first token of each request, which belongs to the prefill.
    """
    case, timings = ended.case, [each.timing for each in steps.requests]
    if not timings and ended.prefill_ns is not None:
        whole_ns = ended.prefill_ns + steps.times.elapsed_ns
        return ended.prefill_ns, whole_ns, case.n_seqs * case.n_input, case.n_seqs * steps.times.n_tokens
    firsts = [each.first_token_ns for each in timings if each.first_token_ns]
    lasts = [each.last_token_ns for each in timings if each.last_token_ns]
    n_generated = sum(max(0, each.n_tokens - 1) for each in timings)
    if min(len(firsts), len(lasts)) < case.n_seqs or not n_generated:
        return None
    return max(firsts), max(lasts), sum(each.n_prompt_counted or each.n_prompt for each in timings), n_generated
