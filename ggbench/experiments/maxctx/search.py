"""The search of `ggbench.experiments.maxctx.measure`: real contexts of one target, narrowed and proven.

It is a separate module because its imports take longer than reading a stored search.
"""

from __future__ import annotations

import contextlib
import functools
import math
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from ggbench.engines.contract import Engine, EngineConfig, EstimateMemory, ProveContext, Source
from ggbench.engines.endings import Cancelled, Completed, Ending, EngineEnded, Outcome, OutOfMemory
from ggbench.engines.events import (
    Allocated,
    ContextProven,
    Event,
    Loaded,
    Memory,
    Opened,
    Opening,
    Proving,
    Ready,
)
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import DoesNotFit, EngineFailed, UsageError
from ggbench.experiments.maxctx.look_ahead import LookAhead, SearchCancelled, look_ahead, look_ahead_by_theory
from ggbench.experiments.maxctx.record import (
    BracketEnds,
    MaxctxSettings,
    Probe,
    ProbeKind,
    Question,
    outcome_text,
)
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.twin import write_sparse
from ggbench.machine import address_space
from ggbench.machine.gpus import list_gpus
from ggbench.machine.host import peak_rss_bytes
from ggbench.runs.experiment import Concluded, Conclusion
from ggbench.runs.progress import ModelReady, PointMeasured, Progress, Working
from ggbench.runs.session import Session, made_file
from ggbench.show.names import quant_name
from ggbench.show.words import say
from ggbench.sizing.fit import Bracket
from ggbench.sizing.projectors import Projector, read_projector
from ggbench.units import KV_CELLS, format_bytes, format_count, format_number


def search_context(session: Session) -> Generator[Progress, None, Conclusion]:
    """Predict, then create and prove contexts. Raises like `MaxctxExperiment.measure`."""
    try:
        seen = yield from _look_ahead(session)
    except SearchCancelled:
        return Concluded(Outcome.CANCELLED, "stopped before the end")
    with contextlib.closing(_Search(session, seen)) as search:
        return (yield from search.run())


def _look_ahead(session: Session) -> Generator[Progress, None, LookAhead]:
    """Size contexts, before the file is made or downloaded if a sparse file with its header is enough for the engine.

    Raises BadFile for a projector of another model.
    """
    setup, settings = session.setup, session.settings(MaxctxSettings)
    if setup.unsupported(EstimateMemory):
        file = yield from session.prepare_file()
        drafting = None if session.draft is None else session.draft.header()
        return look_ahead_by_theory(file, setup, settings, _projector(file, setup, settings), drafting)
    with tempfile.TemporaryDirectory(prefix="ggbench-") as folder:
        if session.target.source is not None:
            file = session.target.source.header()
            path = write_sparse(file, Path(folder))
            session.use_file(file)
        else:
            file = yield from session.prepare_file()
            path = file.paths[0]
        config = LlamaConfig.of(setup)
        draft = None if session.draft is None else session.draft.header()
        launch = functools.partial(session.context.launch, setup, session.cancel)
        return look_ahead(launch, file, path, config, settings, _projector(file, config, settings), draft)


def _projector(file: ModelFile, setup: EngineConfig, settings: MaxctxSettings) -> Projector | None:
    """Return the projector to leave free for; None without one. Raises BadFile for that of another model."""
    if not settings.mmproj:
        return None
    projector = read_projector(Path(settings.mmproj), LlamaConfig.of(setup).flash_attn)
    projector.check(file)
    return projector


class _Search:
    """The search for one target; results are recorded immediately."""

    def __init__(self, session: Session, seen: LookAhead) -> None:
        self._session, self._seen = session, seen
        self._name = quant_name(session.target.subject)
        self._settings = session.settings(MaxctxSettings)
        self._prober: ContextProber | None = None
        self._step = KV_CELLS * session.setup.n_streams
        self._bracket = Bracket(seen.ceiling_n_ctx, step=self._step)

    def run(self) -> Generator[Progress, None, Conclusion]:
        session, seen = self._session, self._seen
        draft = session.draft.named if session.draft else ()
        session.recorder.observe(replace(seen.plan, draft=" ".join(draft)))
        for probe in seen.probes:
            yield self._answered(probe)
        self._check_weights()
        file = yield from session.prepare_file()
        if seen.versions is not None:
            self._begin(seen.versions)
        limit_bytes, ballast_bytes = self._limits
        prober = self._prober = ContextProber(
            session.engine,
            file,
            session.setup.held(limit_bytes, on_gpu=seen.budget.on_gpu),
            reserve_bytes=ballast_bytes,
            begin=self._begin,
            draft=None
            if session.draft is None
            else (yield from made_file(session.draft, session.cancel)).paths[0],
        )
        try:
            conclusion = yield from self._allocate(prober)
            if self._settings.prove and conclusion.outcome is Outcome.COMPLETED:
                self._require_any(file)
                conclusion = yield from self._prove(prober)
        except EngineEnded as ended:
            return self._explain_load(ended)
        if conclusion.outcome is Outcome.COMPLETED:
            self._require_any(file)
        return conclusion

    @property
    def _limits(self) -> tuple[int | None, int]:
        """The worker's limit of main memory, which Linux overcommits, or of each GPU, None for none; and what it keeps
        free of each GPU, if it can.
        """
        budget = self._seen.budget
        if not budget.on_gpu or (self._seen.is_by_theory and budget.kept_bytes):
            return budget.held_bytes, 0
        return self._session.setup.memory_limit_bytes, budget.ballast_bytes

    def _check_weights(self) -> None:
        """Raise DoesNotFit for weights beyond the memory, and UsageError for main memory that cannot be limited."""
        seen = self._seen
        if seen.weight_bytes is not None and seen.weight_bytes > seen.budget.held_bytes:
            self._begin(seen.versions)
            raise self._does_not_fit(seen.weight_bytes)
        if not (seen.budget.on_gpu or address_space.CAN_LIMIT):
            raise UsageError(
                "maxctx in main memory works only on Linux", "use ggbench plan, which allocates nothing"
            )

    def _require_any(self, file: ModelFile) -> None:
        """Raise DoesNotFit or EngineFailed if not even the smallest context works."""
        if self._bracket.passed is not None:
            return
        failed = next(
            probe for probe in reversed(self._session.recorder.recording.of(Probe)) if not probe.passed
        )
        if failed.outcome is Outcome.OUT_OF_MEMORY:
            raise self._does_not_fit(self._seen.weight_bytes or file.file_bytes)
        raise EngineFailed(
            f"{self._name}: not even a context of {self._step} tokens works: {failed.reason}",
            "try another quant or another --flash-attn setting",
        )

    def _begin(self, versions: Mapping[str, str] | None) -> None:
        session = self._session
        session.begin(None if versions is None else session.context.describe_environment(versions))

    def close(self) -> None:
        if self._prober is not None:
            self._prober.close()

    def _allocate(self, prober: ContextProber) -> Generator[Progress, None, Conclusion]:
        """Create contexts until the largest that passes and the smallest that fails are adjacent."""
        file, plan = self._session.file, self._seen.plan
        yield from prober.load()
        expected = plan.planned_n_ctx or plan.theory_n_ctx or (file and file.n_ctx_train) or self._step
        while not self._bracket.is_closed:
            n_ctx = self._bracket.next(expected)
            yield self._asked(n_ctx, "alloc", self._bracket)
            probe = self._unless_cancelled((yield from prober.allocate(n_ctx)))
            if not probe.is_answer:
                yield self._answered(probe)
                return self._stopped(probe)
            self._bracket.record(n_ctx, passed=probe.passed)
            yield self._answered(probe)
            if probe.passed:
                self._session.recorder.observe(prober.memory)
                yield ModelReady(prober.memory, self._session.recorder.run_id)
            expected = self._expected_after(probe, prober, expected)
        return Concluded()

    def _expected_after(self, probe: Probe, prober: ContextProber, expected: int) -> int:
        """Return the expected maximum, given the memory that a context left free or lacked."""
        if self._seen.is_by_theory:
            return self._bracket.middle  # a growing cache's shortage in its last step says little
        if not self._seen.bytes_per_token:
            return expected
        if probe.passed and prober.left_bytes is not None:
            return probe.n_ctx + int(prober.left_bytes / self._seen.bytes_per_token)
        if not probe.passed and probe.missing_bytes is not None:
            return probe.n_ctx - math.ceil(probe.missing_bytes / self._seen.bytes_per_token)
        return expected

    def _prove(self, prober: ContextProber) -> Generator[Progress, None, Conclusion]:
        """Decode at the end of the largest context; if that fails, of smaller ones until the maximum is found again."""
        winner = self._bracket.passed
        assert winner is not None
        below: Bracket | None = None
        n_ctx = expected = winner
        while True:
            yield self._asked(n_ctx, "decode", below or self._bracket)
            probe = self._unless_cancelled((yield from prober.prove(n_ctx)))
            if not probe.is_answer:
                yield self._answered(probe)
                return self._stopped(probe)
            if probe.passed and not prober.was_full:
                reason = "after the decode at its end the context still had free cells, so it proves nothing"
                yield self._answered(replace(probe, reason=reason))
                return Concluded(reason=reason)
            if probe.passed:
                self._session.recorder.observe(self._with_peak(prober))
            if below is None:
                if probe.passed:
                    yield self._answered(probe)
                    return Concluded()
                below = self._bracket = Bracket(n_ctx - self._step, failed=n_ctx, step=self._step)
            else:
                below.record(n_ctx, passed=probe.passed)
            yield self._answered(probe)
            if below.is_closed:
                return Concluded()
            expected = self._expected_after(probe, prober, expected)
            n_ctx = below.next(expected)

    def _unless_cancelled(self, probe: Probe) -> Probe:
        """Mark a failure as cancelled if the worker was being stopped: it says nothing about memory."""
        if probe.passed or not self._session.cancel.is_set():
            return probe
        return replace(probe, outcome=Outcome.CANCELLED, reason=Cancelled().reason)

    def _asked(self, n_ctx: int, kind: ProbeKind, bracket: Bracket) -> Working:
        question = Question(n_ctx, kind, BracketEnds(bracket.passed, bracket.failed))
        doing = "maxctx.decoding" if question.is_proof else "maxctx.allocating"
        return Working("probe", text=say(doing, n_ctx=n_ctx), subject=question)

    def _answered(self, probe: Probe) -> PointMeasured:
        self._session.recorder.observe(probe)
        self._session.recorder.keep_readings()
        ends = BracketEnds(self._bracket.passed, self._bracket.failed)
        outcome, seconds = outcome_text(probe, self._session.setup.program), format_number(probe.seconds, 2)
        text = say("maxctx.tried_one", n_ctx=probe.n_ctx, outcome=outcome, seconds=seconds)
        return PointMeasured("" if probe.is_dry else text, probe, ends)

    def _stopped(self, probe: Probe) -> Conclusion:
        """Return the outcome after a probe that says nothing about memory: cancelled, or a worker that was too slow."""
        if probe.outcome is Outcome.CANCELLED:
            return Concluded(Outcome.CANCELLED, probe.reason)
        doing = "decoding at the end of" if probe.is_proof else "making"
        reason = (
            f"{doing} n_ctx {format_count(probe.n_ctx)}: {probe.reason}; a longer --timeout would let it finish"
        )
        is_found = probe.is_proof and self._bracket.passed is not None
        return Concluded(Outcome.COMPLETED if is_found else Outcome.TIMED_OUT, reason)

    def _with_peak(self, prober: ContextProber) -> Memory:
        """Return the memory of the proven context, with its peak."""
        budget, memory = self._seen.budget, prober.memory
        peak_bytes = self._taken_bytes() if budget.on_gpu else prober.peak_bytes
        if peak_bytes is None:
            return memory
        buffers = *memory.buffers, *memory.draft_buffers
        counted = sum(each.total_bytes for each in buffers if not (budget.on_gpu and each.is_host))
        unexplained = peak_bytes - counted if peak_bytes >= counted else None
        return replace(memory, peak_bytes=peak_bytes, other_bytes=unexplained)

    def _taken_bytes(self) -> int | None:
        """Return by how much the free memory of the GPUs has shrunk; None if NVML does not report each."""
        free_now = {gpu.index: gpu.free_bytes for gpu in list_gpus()}
        limit_bytes, ballast_bytes = self._limits
        total_bytes = 0
        for gpu in self._seen.gpus:
            before_bytes, after_bytes = gpu.free_bytes, free_now.get(gpu.index)
            if before_bytes is None or after_bytes is None:
                return None
            total_bytes += min(before_bytes, limit_bytes or before_bytes) - ballast_bytes - after_bytes
        return total_bytes if total_bytes > 0 else None

    def _explain_load(self, ended: EngineEnded) -> Conclusion:
        session, seen = self._session, self._seen
        assert session.file is not None
        if isinstance(ended.ending, Cancelled) or session.cancel.is_set():
            return Concluded(Outcome.CANCELLED, ended.ending.reason)
        if ended.ending.cause is not None:
            raise ended.ending.cause from ended
        if isinstance(ended.ending, OutOfMemory):
            needed = seen.weight_bytes or session.file.file_bytes
            raise self._does_not_fit(needed) from ended
        raise EngineFailed(
            f"{self._name} does not load: {ended.ending.reason}",
            f"the file may be damaged, or this {session.setup.program} too old for it",
        ) from ended

    def _does_not_fit(self, weight_bytes: int) -> DoesNotFit:
        seen, budget = self._seen, self._seen.budget
        process_bytes = 0 if budget.on_gpu else budget.process_bytes
        missing = weight_bytes + seen.least_bytes + process_bytes - budget.held_bytes
        what = f"{self._name} does not fit into {format_bytes(budget.held_bytes)} of {budget.place}: "
        what += f"weights of {format_bytes(weight_bytes)}"
        if seen.least_bytes:
            what += f" and {format_bytes(seen.least_bytes)} for {self._step} tokens"
        if missing > 0:
            what += f"; {format_bytes(missing)} missing"
        advice = "try a smaller quant; ggbench plan shows what fits"
        if budget.on_gpu and not seen.is_by_theory:
            advice += "; -ngl N puts only N layers on the GPU"
        return DoesNotFit(what, advice)


_PROVING = {"fill": "filling the context before a decode at its end", "batch": "decoding a batch at the end"}


class ContextProber:
    """Creates contexts of one file. `close` stops the worker."""

    def __init__(
        self,
        engine: Engine,
        file: ModelFile,
        setup: EngineConfig,
        *,
        reserve_bytes: int = 0,
        begin: Callable[[Mapping[str, str] | None], None] = lambda _: None,
        draft: Path | None = None,
    ) -> None:
        """`reserve_bytes` of each GPU stay free; the setup's memory limit is for model, `draft` and contexts.

        `begin` is called with the versions of an engine once it is ready, and with None after an answer.
        """
        self._engine, self._source, self._setup, self._begin = (
            engine,
            Source(file.paths[0], draft),
            setup,
            begin,
        )
        self._reserve_bytes = reserve_bytes
        self._pid: int | None = None
        self._live_n_ctx: int | None = None
        self.was_full = False
        """Whether the last proof reached the end, leaving no free cell."""
        self.allocated = Allocated(())
        """Buffers of the model and the last context."""
        self.memory = Memory()
        """Memory of the last context."""
        self.left_bytes: int | None = None
        """Free bytes after the last load or context; None without a limit, or if no worker reported it."""

    @property
    def peak_bytes(self) -> int | None:
        """The worker's peak resident memory; None if the worker is gone."""
        return None if self._pid is None else peak_rss_bytes(self._pid)

    def load(self) -> Generator[Progress]:
        """Load the model. Raises EngineEnded."""
        self._live_n_ctx = None
        ending = yield from self._follow(self._open(None))
        if not isinstance(ending, Completed):
            self.close()
            raise EngineEnded(ending)

    def allocate(self, n_ctx: int) -> Generator[Progress, None, Probe]:
        """Create a context in place of the last one. Raises EngineEnded if a new worker does not load."""
        if self._pid is None:
            yield from self.load()
        self._live_n_ctx = None
        started = time.perf_counter()
        ending = yield from self._follow(self._open(n_ctx))
        seconds = time.perf_counter() - started
        if not isinstance(ending, Completed):
            return _with_blame(Probe(n_ctx, "alloc", ending.outcome, seconds), ending)
        self._live_n_ctx = n_ctx
        return Probe(
            n_ctx, "alloc", Outcome.COMPLETED, seconds, self.memory.kv_bytes, self.memory.compute_bytes
        )

    def prove(self, n_ctx: int) -> Generator[Progress, None, Probe]:
        """Decode at the end of a context, creating it unless it is the last one. Raises like `allocate`."""
        started = time.perf_counter()
        if self._live_n_ctx != n_ctx:
            made = yield from self.allocate(n_ctx)
            if not made.passed:
                return made if made.is_answer else replace(made, kind="decode")
        self._live_n_ctx = None
        ending = yield from self._follow(self._engine.run(ProveContext()))
        seconds = time.perf_counter() - started
        sizes = self.memory.kv_bytes, self.memory.compute_bytes
        return _with_blame(Probe(n_ctx, "decode", ending.outcome, seconds, *sizes), ending)

    def close(self) -> None:
        """Stop the worker; the next call starts another."""
        self._engine.close()
        self._pid = self.left_bytes = self._live_n_ctx = None

    def _open(self, n_ctx: int | None) -> Iterator[Event | Ending]:
        return self._engine.open(
            self._source, self._setup.with_context(n_ctx), reserve_bytes=self._reserve_bytes
        )

    def _follow(self, events: Iterator[Event | Ending]) -> Generator[Progress, None, Ending]:
        ending: Ending | None = None
        for event in events:
            match event:
                case Ready():
                    self._pid = event.pid
                    self._begin(event.versions)
                case Opening(share):
                    yield Working("load", share, 1.0)
                case Proving(stage, share):
                    yield Working("probe", share, 1.0, _PROVING[stage])
                case Allocated():
                    self.allocated = event
                case Loaded():
                    self.left_bytes = event.left_bytes
                case Opened():
                    self.left_bytes, self.memory = event.left_bytes, event.memory(self.allocated)
                case ContextProven(full, left_bytes):
                    self.was_full, self.left_bytes = full, left_bytes
                case Ending():
                    ending = event
        assert ending is not None
        self._begin(None)
        if ending.is_final:
            self.close()
        return ending


def _with_blame(probe: Probe, ending: Ending) -> Probe:
    if not isinstance(ending, OutOfMemory):
        return replace(probe, reason=ending.reason)
    return replace(probe, reason=ending.reason, missing_bytes=ending.missing_bytes, device=ending.device)
