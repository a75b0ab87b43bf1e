"""The measurement of `speed.measure`: calibrate, then run one case after another until time is up.

Each case has its own context, so that its memory and its cost are those of the case alone; on a server, all run in the
contexts created at its start. The model is loaded once.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from msgspec.structs import replace

from ggbench.engines.contract import BatchedDecode, Engine, EngineConfig
from ggbench.engines.endings import Cancelled, Completed, Ending, EngineEnded, Outcome, require_completed
from ggbench.engines.events import Memory
from ggbench.engines.llama.config import LARGEST_N_CTX, LlamaConfig
from ggbench.experiments.speed.measure import ended_cases
from ggbench.experiments.speed.record import BatchLimit, Case, CaseEnded, CaseMemory, SpeedCase, SpeedSettings
from ggbench.gguf_file.model_file import ModelFile
from ggbench.runs.experiment import Conclusion
from ggbench.runs.progress import PointMeasured, Progress, Working
from ggbench.runs.recording import PromptTiming, WorkerPeak
from ggbench.runs.session import Session, kv_bytes_per_token
from ggbench.runs.store.runs import WARMUP
from ggbench.sizing.search_budget import budget_by_theory
from ggbench.sizing.what_helps import SetupSizes
from ggbench.stats.decode_timing import ServerFound
from ggbench.stats.linefit import Moments
from ggbench.stats.samples import Floats, group_medians, least_squares_above_zero, stair
from ggbench.units import format_bytes, format_count, format_duration, format_number

_SHORT_INPUT, _FEW_STEPS = 16, 8
"""Tokens read and decoded before any case, to forecast the first ones."""
_FIRST_RUNG, _SURE_FROM = 128, 512
"""First of the prompts, each twice as long as the one before, that show how prefill and decode scale with the input;
and the length after which forecasts can be good enough."""
_RUNG_SHARE = 0.05
"""Largest share of the time for all cases that one such prompt may take."""
_SURE_SHARE = 0.5
"""If all cases together take less than this share of the time, better forecasts are not needed."""
_SERVER_BATCH = 512
"""Tokens of a physical batch, if unknown: llama-server's default."""


def run_cases(session: Session) -> Generator[Progress, None, Conclusion]:
    """Measure the cases in the settings. Raises like `SpeedExperiment.measure`."""
    runner = _Runner(session)
    ending = yield from runner.open()
    return (yield from runner.run()) if isinstance(ending, Completed) else ending


class _Runner:
    """The cases of one quant."""

    def __init__(self, session: Session) -> None:
        self._session, self._settings = session, session.settings(SpeedSettings)
        self._makes_contexts = session.setup.loads_file
        self._sizes: dict[Case, CaseSize] = {}
        """Size of each case before it runs; empty for a server, which does not report its memory."""

    def open(self) -> Generator[Progress, None, Ending]:
        """Size all cases and load the model alone, or find the server. Raises DoesNotFit if no memory is free."""
        session, setup = self._session, self._session.setup
        if self._makes_contexts:
            file = yield from session.prepare_file()
            if setup.sizes_dry:
                engine = session.context.launch(setup, session.cancel)
                self._sizes = size_cases(engine, file, LlamaConfig.of(setup), self._settings.cases)
            else:
                self._sizes = size_cases_by_theory(file, setup, self._settings.cases)
            return (yield from session.open(setup))  # without an n_ctx
        return (yield from session.open())

    def run(self) -> Generator[Progress, None, Conclusion]:
        """Measure every case; a failure does not stop the others, only cancelling does."""
        session, cases = self._session, self._settings.cases
        limit = session.limit(1)
        w_tokens_per_ms = limit and limit.w_tokens_per_ms
        self._forecast = CaseForecast(least_slope_s=1e-3 / w_tokens_per_ms if w_tokens_per_ms else 0.0)
        self._started = time.monotonic()
        for n_seqs in self._settings.batches:
            limit = session.limit(n_seqs)
            if limit is not None:
                session.recorder.observe(BatchLimit(n_seqs, limit))
        if self._settings.within_s is not None:
            with contextlib.suppress(EngineEnded):  # the cases will fail the same way, each with its own row
                yield from self._calibrate(self._settings.within_s)
        for number, case in enumerate(cases, 1):
            if session.cancel.is_set():
                return Cancelled()
            ended = self._refused(case)
            if ended is None:
                yield Working("prompt", text=f"case {number} of {len(cases)}: {case.name}", subject=case)
                ended = yield from self._measure(case)
            if ended.outcome is Outcome.CANCELLED:
                return Cancelled()
            session.recorder.observe(ended)
            found = next(each for each in ended_cases(session.recorder.recording) if each.case == case)
            yield PointMeasured(f"{case.name}: {_figures(found)}", found)
        return Completed()

    def _obstacle(self, case: Case) -> str:
        """Return why the case does not fit; empty if it does, as far as is known."""
        if self._makes_contexts:
            return self._sizes[case].obstacle
        server = self._session.recorder.recording.last(ServerFound)
        needed = case.n_input + case.n_gen + 1
        if server is None or server.n_ctx is None or needed <= server.n_ctx:
            return ""
        return f"{needed:,} tokens do not fit into the server's context of {server.n_ctx:,}"

    def _planned_memory(self, case: Case) -> CaseMemory | None:
        return self._sizes[case].memory if self._makes_contexts else None

    def _refused(self, case: Case) -> CaseEnded | None:
        """Return the outcome of a case that does not fit or would exceed the time left; None for one to run."""
        memory, expected_s = self._planned_memory(case), self._forecast.expected_s(case)
        if obstacle := self._obstacle(case):
            outcome = Outcome.OUT_OF_MEMORY if self._makes_contexts else Outcome.SKIPPED
            return CaseEnded(case, outcome, obstacle, expected_s, memory=memory)
        within_s = self._settings.within_s
        if within_s is None or expected_s is None:
            return None
        left_s = max(0.0, within_s - (time.monotonic() - self._started))
        if expected_s <= left_s:
            return None
        left = f"{format_duration(left_s)} of {format_duration(within_s)}"
        reason = f"would take about {format_duration(expected_s)}, but only {left} are left"
        return CaseEnded(case, Outcome.SKIPPED, reason, expected_s, memory=memory)

    def _calibrate(self, within_s: float) -> Generator[Progress, None, None]:
        """Run a few steps of every batch size, as time allows, then longer prompts. Raises EngineEnded."""
        cases = [case for case in self._settings.cases if not self._obstacle(case)]
        yield Working("prompt", text="short prompts, to forecast the cases")
        for n_seqs in sorted({1, *(case.n_seqs for case in cases)}):
            short = Case(n_seqs, _SHORT_INPUT, _FEW_STEPS)
            if (self._forecast.expected_s(short) or 0.0) <= _RUNG_SHARE * within_s:
                yield from self._try(short)
        n_input, longest = _FIRST_RUNG, max((case.n_input for case in cases), default=0)
        while n_input < longest:
            total_s = sum(self._forecast.expected_s(case) or 0.0 for case in cases)
            expected_s = self._forecast.prefill_s(n_input) or 0.0
            is_known = n_input > _SURE_FROM and total_s < _SURE_SHARE * within_s
            if is_known or expected_s > _RUNG_SHARE * within_s:
                return
            yield from self._try(Case(1, n_input, _FEW_STEPS))
            n_input *= 2

    def _try(self, case: Case) -> Generator[Progress, None, None]:
        """Run a case only for the forecast. Raises EngineEnded."""
        series = f"{WARMUP}forecast/i{case.n_input}/b{case.n_seqs}"
        yield from self._open_context(case)
        yield from self._warm_up(case, f"{series}/first")
        yield from self._decode(case, series)

    def _measure(self, case: Case) -> Generator[Progress, None, CaseEnded]:
        expected_s, session = self._forecast.expected_s(case), self._session
        memory = self._planned_memory(case)
        timing: PromptTiming | None = None
        outcome, reason = Outcome.COMPLETED, ""
        try:
            yield from self._open_context(case)
            memory = _memory_of(session.recorder.recording.last(Memory)) or memory
            yield from self._warm_up(case, f"{WARMUP}i{case.n_input}/b{case.n_seqs}")
            timing = yield from self._decode(case, case.series)
        except EngineEnded as ended:
            outcome, reason = ended.ending.outcome, ended.ending.reason
        recorder = session.recorder
        recorder.keep_readings()
        recorder.keep_peak()
        peak, gpu_use = recorder.recording.last(WorkerPeak), recorder.recording.gpu_use
        is_limited = session.setup.memory_limit_bytes is not None
        return CaseEnded(
            case,
            outcome,
            reason,
            expected_s,
            None if timing is None else timing.elapsed_ns,
            None if timing is None else timing.sampler_ns,
            memory,
            None if peak is None else peak.peak_bytes,
            None if gpu_use is None or is_limited else gpu_use.worker_bytes,
        )

    def _open_context(self, case: Case) -> Generator[Progress, None, None]:
        """Replace the context with one of the case's length. Raises EngineEnded."""
        if self._makes_contexts:
            setup = self._session.setup.with_context(case.n_tokens // case.n_seqs, case.n_seqs)
            require_completed((yield from self._session.open(setup)))

    def _warm_up(self, case: Case, series: str) -> Generator[Progress, None, None]:
        """Compute a physical batch, since the first use of memory is slower. Raises EngineEnded."""
        n_prompt = min(case.n_input, -(-(self._session.setup.n_ubatch or _SERVER_BATCH) // case.n_seqs))
        require_completed((yield from self._session.run(BatchedDecode(n_prompt, 1, case.n_seqs), series)))

    def _decode(self, case: Case, series: str) -> Generator[Progress, None, PromptTiming | None]:
        """Raises EngineEnded."""
        recording = self._session.recorder.recording
        # a server's requests are timed individually; elsewhere all sequences step together
        n_total = sum(each.n_gen * (1 if self._makes_contexts else each.n_seqs) for each in self._settings.cases)
        n_before = len(recording.of(PromptTiming))
        request = BatchedDecode(case.n_input, case.n_gen, case.n_seqs)
        ending = yield from self._session.run(request, series, n_total)
        timing = recording.last(PromptTiming) if len(recording.of(PromptTiming)) > n_before else None
        if timing is not None:
            self._forecast.add_prompts(case.n_input, case.n_seqs, timing.elapsed_ns / 1e9)
        steps = recording.token_times(recording.series_of(series))
        if steps.step_ns:
            self._forecast.add_steps(case.n_seqs, steps.position, steps.step_ns)
        require_completed(ending)
        return timing


def _figures(found: SpeedCase) -> str:
    if found.tok_s_qwen2_5 is None:
        return found.ended.outcome.because(found.ended.reason)
    qwen = f"{format_number(found.tok_s_qwen2_5)} tok/s as Qwen2.5 counts, {format_number(found.tok_s_qwen3)} as Qwen3"
    return f"{qwen}; decode {format_number(found.decode_tok_s)}, prefill {format_number(found.prefill_tok_s)}"


def _memory_of(memory: Memory | None) -> CaseMemory | None:
    if memory is None or memory.weight_bytes is None or memory.total_bytes is None:
        return None
    kv_bytes = memory.kv_bytes or 0
    return CaseMemory(memory.weight_bytes, kv_bytes, memory.total_bytes - memory.weight_bytes - kv_bytes)


_TRUSTED_SHARE = 0.5
"""A batch observed over less than this share of one sequence's positions gets the slope of one sequence times its
size.
"""


@dataclass(slots=True)
class CaseForecast:
    """Results so far, and forecasts of the other cases.

    A prefill of B prompts of n tokens takes a + b B n + c B n², with c for attention and no coefficient below zero. A
    step of a decode follows W and B of its batch size; W is inversely proportional to the batch size if that was not
    observed far enough. Without any step of a batch size, its time is proportional to that of a smaller one, an upper
    bound.
    """

    least_slope_s: float = 0.0
    """Minimum time added by a position to a step of one sequence, by memory bandwidth."""
    _prompts: list[tuple[int, int, float]] = field(default_factory=list)
    """Tokens of a sequence, sequences, seconds."""
    _steps: dict[int, tuple[list[float], list[float]]] = field(default_factory=dict)
    """Positions and seconds, by the number of sequences."""

    def add_prompts(self, n_input: int, n_seqs: int, seconds: float) -> None:
        self._prompts.append((n_input, n_seqs, seconds))

    def add_steps(self, n_seqs: int, positions: Sequence[float], step_ns: Sequence[float]) -> None:
        known = self._steps.setdefault(n_seqs, ([], []))
        known[0].extend(positions)
        known[1].extend(each * 1e-9 for each in step_ns)

    def expected_s(self, case: Case) -> float | None:
        """Return the expected time of a case's prefill and decode; None before anything similar has run."""
        prefill_s, decode_s = self.prefill_s(case.n_input, case.n_seqs), self._decode_s(case)
        return None if prefill_s is None or decode_s is None else prefill_s + decode_s

    def prefill_s(self, n_input: int, n_seqs: int = 1) -> float | None:
        """Return the expected time of prompts of that length; None before any was read."""
        if not self._prompts:
            return None
        rows = np.array([_terms(n, seqs) for n, seqs, _ in self._prompts])
        seconds = np.array([each for *_, each in self._prompts])
        # relative errors, so that short prompts determine the linear coefficient and long ones the quadratic
        coefficients = least_squares_above_zero(rows / seconds[:, None], np.ones_like(seconds))
        return float(_terms(n_input, n_seqs) @ coefficients)

    def _decode_s(self, case: Case) -> float | None:
        own = self._steps.get(case.n_seqs)
        if own is None:
            smaller = max((n_seqs for n_seqs in self._steps if n_seqs < case.n_seqs), default=None)
            if smaller is None:
                return None
            at_most = self._decode_s(replace(case, n_seqs=smaller))
            return None if at_most is None else at_most * case.n_seqs / smaller
        one = self._steps.get(1, own)
        line, line_of_one = _line(*own), _line(*one)
        slope = line.slope
        if max(own[0]) < _TRUSTED_SHARE * max(one[0]):
            slope = line_of_one.slope * case.n_seqs
        slope = max(slope, self.least_slope_s * case.n_seqs)
        middle = case.n_input + (case.n_gen + 1) / 2
        return case.n_gen * (line.mean_y + slope * (middle - line.mean_x))


def _terms(n_input: int, n_seqs: int) -> Floats:
    return np.array([1.0, n_seqs * n_input, n_seqs * float(n_input) ** 2])


def _line(positions: Sequence[float], seconds: Sequence[float]) -> Moments:
    """Return the line through medians over 256 positions, which an interrupted step does not distort."""
    x = np.asarray(positions, np.float64)
    stairs = stair(x)
    return Moments.of(group_medians(stairs, x).medians, group_medians(stairs, np.asarray(seconds)).medians)


class CaseSize(msgspec.Struct, frozen=True):
    """One case before it runs."""

    memory: CaseMemory | None = None
    """None if llama.cpp did not size it."""
    obstacle: str = ""
    """Why it does not fit, in one line; empty if it does, as far as is known."""


def size_cases(engine: Engine, file: ModelFile, setup: LlamaConfig, cases: Sequence[Case]) -> dict[Case, CaseSize]:
    """Return the size of every case, within milliseconds; stops the engine. Raises DoesNotFit if no memory is free."""
    largest = f"llama.cpp's maximum n_ctx is {format_count(LARGEST_N_CTX)}"
    sized = [case for case in cases if case.n_ctx <= LARGEST_N_CTX]
    setups = [replace(setup, n_ctx=case.n_ctx, n_seq_max=case.n_seqs) for case in sized]
    found = dict(zip(sized, SetupSizes(lambda: engine, file, setup).of(setups), strict=True))
    sizes = {}
    for case in cases:
        size = found.get(case)
        if size is None:
            sizes[case] = CaseSize(obstacle=f"needs an n_ctx of {format_count(case.n_ctx)}, but {largest}")
        elif size.context is None or file.weight_bytes is None:
            sizes[case] = CaseSize()  # the real load will report why
        else:
            context = size.context
            compute = context.device_compute_bytes + context.host_compute_bytes + context.output_bytes
            memory = CaseMemory(file.weight_bytes, context.cache_bytes, compute)
            sizes[case] = CaseSize(memory, size.obstacle)
    return sizes


def size_cases_by_theory(file: ModelFile, setup: EngineConfig, cases: Sequence[Case]) -> dict[Case, CaseSize]:
    """Return the size of every case by weights and KV cache alone. Raises DoesNotFit if no memory is free."""
    free_bytes, per_token = budget_by_theory(setup, None).held_bytes, kv_bytes_per_token(file, setup)
    if file.weight_bytes is None or per_token is None:
        return {case: CaseSize() for case in cases}
    sizes = {}
    for case in cases:
        memory = CaseMemory(file.weight_bytes, per_token * case.n_tokens, 0)
        free, needed = format_bytes(free_bytes), format_bytes(memory.total_bytes)
        is_fitting = memory.total_bytes <= free_bytes
        sizes[case] = CaseSize(memory, "" if is_fitting else f"weights and KV cache need {needed}, but {free} are free")
    return sizes
