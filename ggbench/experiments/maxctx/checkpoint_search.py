"""The search of `maxctx.measure` for a checkpoint: real caches of Transformers, closed in on and proven.

Nothing can be sized dry, so theory alone says where to begin. A dynamic cache is grown as in a decode, where every step
needs room for a layer's new keys or values beside the old ones: that is what it holds less than a static one.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import replace

from ggbench.engines.endings import Completed, Ending, Outcome, OutOfMemory
from ggbench.engines.events import ContextProven, Event
from ggbench.engines.memory import Memory
from ggbench.engines.transformers.config import TransformersConfig
from ggbench.engines.workloads.prove_context import ProveContext
from ggbench.errors import DoesNotFit, EngineFailed, Unsupported, UsageError
from ggbench.experiments.maxctx.probe_text import answer_text, question_text
from ggbench.experiments.maxctx.record import BracketEnds, ContextSettings, Probe, ProbeKind, Question, SearchPlan
from ggbench.machine.gpus import list_gpus
from ggbench.machine.readings import list_gpu_processes
from ggbench.runs.experiment import Concluded, Conclusion
from ggbench.runs.progress import Point, Progress, Working
from ggbench.runs.session import Session, kv_bytes_per_token
from ggbench.sizing.bracket import Bracket
from ggbench.sizing.budget import SearchBudget, checkpoint_budget, taken_bytes
from ggbench.units import KV_CELLS, format_bytes, format_count

_CEILING = 1 << 20
"""As of a plan, unless the model was trained for more."""


def search_checkpoint(session: Session) -> Generator[Progress, None, Conclusion]:
    """Make and prove caches. Raises DoesNotFit, EngineFailed, Unsupported, UsageError and what `materialize` does."""
    settings, setup = session.settings(ContextSettings), session.setup
    if not isinstance(setup, TransformersConfig):
        raise Unsupported("the largest context is searched by llama.cpp and Transformers", "name a GGUF file instead")
    if settings.mmproj:
        raise UsageError("a projector is loaded by llama.cpp alone", "omit --mmproj")
    file = yield from session.prepare_file()
    budget = checkpoint_budget(setup, settings.reserve_bytes)
    weight_bytes = file.weight_bytes or file.file_bytes
    per_token = kv_bytes_per_token(file, setup)
    ceiling = max(_CEILING, file.n_ctx_train or 0)
    if settings.cap_train:
        ceiling = file.n_ctx_train or ceiling
    ceiling = max(KV_CELLS, min(ceiling, setup.n_ctx or ceiling) // KV_CELLS * KV_CELLS)
    room_bytes = max(0, budget.held_bytes - weight_bytes)
    theory = None if per_token is None else room_bytes // per_token // KV_CELLS * KV_CELLS
    planned = budget.planned
    session.recorder.observe(
        SearchPlan(
            theory_n_ctx=theory,
            ceiling_n_ctx=ceiling,
            budget_bytes=planned.usable_bytes,
            memory_bytes=planned.memory_bytes,
            memory_source=planned.memory_source,
            reserve_bytes=planned.reserve_bytes,
            free_bytes=budget.free_bytes,
            gpu_processes=list_gpu_processes([gpu.index for gpu in budget.gpus]) if budget.on_gpu else (),
            warnings=(budget.warning,) if budget.warning else (),
        )
    )
    limit_bytes = budget.worker_limit_bytes
    if budget.worker_reserve_bytes:
        limit_bytes = min(limit_bytes or budget.held_bytes, budget.held_bytes)
    held = replace(setup, device="cuda" if budget.on_gpu else "cpu", memory_limit_bytes=limit_bytes, n_ctx=None)
    yield from _load(session, held, budget, weight_bytes)
    return (yield from _Search(session, held, budget, Bracket(ceiling), theory or file.n_ctx_train or KV_CELLS).run())


def _load(
    session: Session, setup: TransformersConfig, budget: SearchBudget, weight_bytes: int
) -> Generator[Progress, None, None]:
    """Load the model alone. Raises DoesNotFit and EngineFailed."""
    needs = f"weights of {format_bytes(weight_bytes)}"
    room = f"{format_bytes(budget.held_bytes)} of {budget.place}"
    hint = "nf4 and int8 convert at load and take less; ggbench plan shows what fits"
    if weight_bytes > budget.held_bytes:
        session.begin(None)
        raise DoesNotFit(f"{session.target.model} {setup.method} does not fit into {room}: {needs}", hint)
    ending = yield from session.open(setup)
    if isinstance(ending, OutOfMemory):
        raise DoesNotFit(
            f"{session.target.model} {setup.method} does not fit into {room}: {needs}; {ending.reason}", hint
        )
    if not isinstance(ending, Completed):
        if ending.cause is not None:
            raise ending.cause
        if ending.outcome is not Outcome.CANCELLED:
            raise EngineFailed(f"{session.target.model} {setup.method} does not load: {ending.reason}")


class _Search:
    """The questions about one loaded checkpoint."""

    def __init__(
        self, session: Session, setup: TransformersConfig, budget: SearchBudget, bracket: Bracket, expected: int
    ) -> None:
        self._session, self._setup, self._budget, self._bracket = session, setup, budget, bracket
        self._expected = expected

    def run(self) -> Generator[Progress, None, Conclusion]:
        """Close in on the largest cache that can be made, then prove it, or the largest below that can be proven."""
        settings = self._session.settings(ContextSettings)
        stopped = yield from self._close_in("alloc")
        if stopped is None and settings.prove and self._bracket.passed is not None:
            made = self._bracket.passed
            self._bracket, self._expected = Bracket(made), made
            stopped = yield from self._close_in("decode")
        if stopped is not None:
            return stopped
        if self._bracket.passed is None:
            failed = self._session.recorder.recording.of(Probe)[-1]
            error = DoesNotFit if failed.outcome is Outcome.OUT_OF_MEMORY else EngineFailed
            raise error(
                f"{self._session.target.model} {self._setup.method}: not even {KV_CELLS} tokens work: {failed.reason}",
                "close programs that use the memory, or take a smaller model",
            )
        return Concluded()

    def _close_in(self, kind: ProbeKind) -> Generator[Progress, None, Conclusion | None]:
        """Ask until the ends are neighbours; return how the run ends where an answer shows nothing about memory."""
        bracket = self._bracket
        while not bracket.is_closed:
            n_ctx = bracket.next(self._expected)
            question = Question(n_ctx, kind, BracketEnds(bracket.passed, bracket.failed), self._budget.held_bytes)
            yield Working("probe", text=question_text(question), subject=question)
            probe = yield from (self._made(n_ctx) if kind == "alloc" else self._proven(n_ctx))
            if self._session.cancel.is_set() and not probe.passed:
                probe = replace(probe, outcome=Outcome.CANCELLED, reason="stopped before its end")
            if probe.is_answer:
                bracket.record(n_ctx, passed=probe.passed)
            self._session.recorder.observe(probe)
            self._session.recorder.keep_readings()
            yield Point(answer_text(probe, self._setup.program), probe, BracketEnds(bracket.passed, bracket.failed))
            if not probe.is_answer:
                return Concluded(probe.outcome, f"n_ctx {format_count(n_ctx)}: {probe.reason}")
            if probe.passed and probe.reason:
                return Concluded(reason=f"n_ctx {format_count(n_ctx)}: {probe.reason}")
            self._expected = _expected(bracket)
        return None

    def _made(self, n_ctx: int) -> Generator[Progress, None, Probe]:
        """Make a cache in place of the last one."""
        started = time.perf_counter()
        ending = yield from self._session.open(replace(self._setup, n_ctx=n_ctx))
        return self._probe(n_ctx, "alloc", ending, started)

    def _proven(self, n_ctx: int) -> Generator[Progress, None, Probe]:
        """Decode at the far end of a cache, made first."""
        started = time.perf_counter()
        ending = yield from self._session.open(replace(self._setup, n_ctx=n_ctx))
        events: list[Event] = []
        if isinstance(ending, Completed):
            ending = yield from self._session.run(ProveContext(), events=events)
        probe = self._probe(n_ctx, "decode", ending, started)
        if not probe.passed:
            return probe
        if not any(isinstance(event, ContextProven) and event.full for event in events):
            return replace(probe, reason="the decode did not reach the end of the cache, so it proves nothing")
        self._session.recorder.observe(self._with_peak())
        return probe

    def _probe(self, n_ctx: int, kind: ProbeKind, ending: Ending, started: float) -> Probe:
        missing = ending.missing_bytes if isinstance(ending, OutOfMemory) else None
        memory = self._session.recorder.recording.last(Memory) or Memory()
        is_made = isinstance(ending, Completed)
        return Probe(
            n_ctx,
            kind,
            ending.outcome,
            time.perf_counter() - started,
            memory.kv_bytes if is_made else None,
            memory.compute_bytes if is_made else None,
            ending.reason,
            missing,
        )

    def _with_peak(self) -> Memory:
        """The memory of the cache that was proven, with the most that was taken meanwhile."""
        recorder, budget = self._session.recorder, self._budget
        recorder.keep_peak()
        memory = recorder.recording.last(Memory) or Memory()
        if not budget.on_gpu:
            return memory
        peak_bytes = taken_bytes(budget, list_gpus())
        counted = sum(each.total_bytes for each in memory.buffers if not each.is_host)
        if peak_bytes is None:
            return memory
        return replace(memory, peak_bytes=peak_bytes, other_bytes=max(0, peak_bytes - counted))


def _expected(bracket: Bracket) -> int:
    """The middle of what is open; a quarter away from the only end that is known."""
    if bracket.passed is not None and bracket.failed is not None:
        return (bracket.passed + bracket.failed) // 2
    return (bracket.failed or 0) * 3 // 4 if bracket.passed is None else bracket.passed * 5 // 4
