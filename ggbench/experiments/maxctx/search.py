"""The search of `ggbench.experiments.maxctx.measure`: real contexts of one target, narrowed and proven.

It is a separate module because its imports take longer than reading a stored search.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Generator
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from ggbench.engines.contract import EstimateMemory, ProveContext
from ggbench.engines.endings import Cancelled, Completed, Ending, EngineEnded, Outcome, OutOfMemory
from ggbench.engines.events import ContextProven
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import DoesNotFit, EngineFailed, UsageError
from ggbench.experiments.maxctx.look_ahead import LookAhead, SearchCancelled, look_ahead, look_ahead_by_theory
from ggbench.experiments.maxctx.record import (
    MaxctxSettings,
    Probe,
    ProbeKind,
    outcome_text,
)
from ggbench.files import temporary_folder
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.twin import write_sparse
from ggbench.machine import address_space
from ggbench.runs.experiment import Concluded, Conclusion
from ggbench.runs.progress import Measuring, PointMeasured, Progress, Working
from ggbench.runs.session import Session, made_file
from ggbench.show.names import quant_name
from ggbench.show.words import say
from ggbench.sizing.fit import Bracket
from ggbench.units import KV_CELLS, format_bytes, format_count, format_number


def search_context(session: Session) -> Measuring[Conclusion]:
    """Predict, then create and prove contexts. Raises like `MaxctxExperiment.measure`."""
    try:
        seen = yield from _look_ahead(session)
    except SearchCancelled:
        return Concluded(Outcome.CANCELLED, "stopped before the end")
    return (yield from _Search(session, seen).run())


def _look_ahead(session: Session) -> Measuring[LookAhead]:
    """Size contexts, before the file is made or downloaded if a sparse file with its header is enough."""
    setup, settings = session.setup, session.settings(MaxctxSettings)
    if setup.unsupported(EstimateMemory):
        file = yield from session.prepare_file()
        drafting = None if session.draft is None else session.draft.header()
        return look_ahead_by_theory(file, setup, settings, drafting)
    with temporary_folder() as folder:
        if session.target.source is not None:
            file = session.target.source.header()
            path = write_sparse(file, folder)
            session.use_file(file)
        else:
            file = yield from session.prepare_file()
            path = file.paths[0]
        config = LlamaConfig.of(setup)
        draft = None if session.draft is None else session.draft.header()
        launch = functools.partial(session.context.launch, setup, session.cancel)
        return look_ahead(launch, file, path, config, settings, draft)


class _Search:
    """The search for one target; results are recorded immediately."""

    def __init__(self, session: Session, seen: LookAhead) -> None:
        self._session, self._seen = session, seen
        self._name = quant_name(session.target.subject)
        self._settings = session.settings(MaxctxSettings)
        self._step = KV_CELLS * session.setup.n_streams
        self._bracket = Bracket(seen.plan.ceiling_n_ctx or self._step, step=self._step)
        self._created: int | None = None
        """The largest context that could be created; None before all others were tried."""
        self._setup = session.setup
        """With the limit of the search."""
        self._ballast_bytes = 0
        self._draft: Path | None = None
        self._is_loaded = False
        self._live_n_ctx: int | None = None
        """The context that exists and that nothing was decoded in."""

    def run(self) -> Measuring[Conclusion]:
        session, seen = self._session, self._seen
        draft = session.draft.named if session.draft else ()
        session.recorder.observe(replace(seen.plan, draft=" ".join(draft)))
        limit_bytes, self._ballast_bytes = self._limits
        self._setup = session.setup.held(limit_bytes, on_gpu=seen.budget.on_gpu)
        self._check_weights()
        file = yield from session.prepare_file()
        if session.draft is not None:
            self._draft = (yield from made_file(session.draft, session.cancel)).paths[0]
        plan = seen.plan
        expected = plan.planned_n_ctx or plan.theory_n_ctx or file.n_ctx_train or self._step
        try:
            yield from self._load()
            conclusion = yield from self._narrow("alloc", expected)
            if self._settings.prove and conclusion.outcome is Outcome.COMPLETED:
                self._require_any(file)
                conclusion = yield from self._prove()
        except EngineEnded as ended:
            return self._explain_load(ended)
        if conclusion.outcome is Outcome.COMPLETED and not conclusion.reason:
            self._require_any(file)
        return conclusion

    @property
    def _limits(self) -> tuple[int | None, int]:
        """The worker's limit of main memory, which Linux overcommits, or of each GPU, None for none; and what it keeps
        free of each GPU, if it can.
        """
        budget = self._seen.budget
        if not budget.on_gpu or (self._session.setup.unsupported(EstimateMemory) and budget.kept_bytes):
            return budget.held_bytes, 0
        return self._session.setup.memory_limit_bytes, budget.ballast_bytes

    def _check_weights(self) -> None:
        """Raise DoesNotFit for weights beyond the memory, and UsageError for main memory that cannot be limited."""
        seen = self._seen
        if seen.weight_bytes is not None and seen.weight_bytes > seen.budget.held_bytes:
            self._session.begin(None)
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

    def _prove(self) -> Measuring[Conclusion]:
        """Decode at the end of the largest context; if that fails, of smaller ones until the maximum is found again."""
        self._created = created = self._bracket.passed or 0
        self._bracket = Bracket(created, self._bracket.failed, self._step)
        return (yield from self._narrow("decode", created))

    def _narrow(self, kind: Literal["alloc", "decode"], expected: int) -> Measuring[Conclusion]:
        """Try contexts until the largest that passes and the smallest that fails are adjacent."""
        while not self._bracket.is_closed:
            n_ctx = self._bracket.next(expected)
            yield self._asked(n_ctx, kind)
            probe, is_full = yield from self._tried(n_ctx, kind)
            if not probe.is_answer:
                yield self._answered(probe)
                return self._stopped(probe)
            if not is_full:
                reason = "after the decode at its end the context still had free cells, so it proves nothing"
                yield self._answered(replace(probe, reason=reason))
                return Concluded(reason=reason)
            self._bracket.record(n_ctx, passed=probe.passed)
            yield self._answered(probe)
            expected = self._expected_after(probe, expected)
        return Concluded()

    def _load(self) -> Measuring[None]:
        """Load the model without a context. Raises EngineEnded."""
        ending = yield from self._open(None)
        if not isinstance(ending, Completed):
            self._session.engine.close()
            raise EngineEnded(ending)
        self._is_loaded = True

    def _open(self, n_ctx: int | None) -> Measuring[Ending]:
        self._live_n_ctx = None
        return (
            yield from self._session.open(
                self._setup.with_context(n_ctx), draft=self._draft, reserve_bytes=self._ballast_bytes
            )
        )

    def _tried(
        self, n_ctx: int, kind: Literal["alloc", "decode"]
    ) -> Generator[Progress, None, tuple[Probe, bool]]:
        """Create a context unless it is the last one, and to prove it decode at its end; return whether that filled it.

        Raises EngineEnded if a new worker does not load.
        """
        if not self._is_loaded:
            yield from self._load()
        session, started, is_full = self._session, time.perf_counter(), True
        ending: Ending = Completed()
        if self._live_n_ctx != n_ctx:
            ending = yield from self._open(n_ctx)
        is_created = isinstance(ending, Completed)
        self._live_n_ctx = n_ctx if is_created else None
        if is_created and kind == "decode":
            ending, is_full = yield from self._decoded()
        if ending.is_final:
            self._is_loaded, self._live_n_ctx = False, None
        tried: ProbeKind = kind if is_created else "alloc"
        probe = Probe(n_ctx, tried, ending.outcome, time.perf_counter() - started, reason=ending.reason)
        if is_created:
            memory = session.memory
            probe = replace(probe, kv_bytes=memory.kv_bytes, compute_bytes=memory.compute_bytes)
        if isinstance(ending, OutOfMemory):
            probe = replace(probe, missing_bytes=ending.missing_bytes, device=ending.device)
        return self._unless_cancelled(probe), is_full

    def _decoded(self) -> Generator[Progress, None, tuple[Ending, bool]]:
        """Decode at the end of the context, and return whether that filled it, as far as is known."""
        self._live_n_ctx, is_full = None, True
        events, ending = yield from self._session.ask(ProveContext())
        for event in events:
            if isinstance(event, ContextProven):
                is_full, self._session.left_bytes = event.full, event.left_bytes
        return ending, is_full

    def _expected_after(self, probe: Probe, expected: int) -> int:
        """Return the expected maximum, given the memory that a context left free or lacked."""
        left_bytes = self._session.left_bytes
        if not self._seen.bytes_per_token:
            return expected
        if probe.passed and left_bytes is not None:
            return probe.n_ctx + int(left_bytes / self._seen.bytes_per_token)
        if not probe.passed and probe.missing_bytes is not None:
            return probe.n_ctx - math.ceil(probe.missing_bytes / self._seen.bytes_per_token)
        return expected

    def _unless_cancelled(self, probe: Probe) -> Probe:
        """Mark a failure as cancelled if the worker was being stopped: it says nothing about memory."""
        if probe.passed or not self._session.cancel.is_set():
            return probe
        return replace(probe, outcome=Outcome.CANCELLED, reason=Cancelled().reason)

    def _asked(self, n_ctx: int, kind: ProbeKind) -> Working:
        doing = "maxctx.decoding" if kind == "decode" else "maxctx.allocating"
        return Working("probe", text=say(doing, n_ctx=n_ctx))

    def _answered(self, probe: Probe) -> PointMeasured:
        self._session.recorder.observe(probe)
        self._session.recorder.keep_readings()
        outcome, seconds = outcome_text(probe, self._session.setup.program), format_number(probe.seconds, 2)
        text = say("maxctx.tried_one", n_ctx=probe.n_ctx, outcome=outcome, seconds=seconds)
        return PointMeasured(text, probe)

    def _stopped(self, probe: Probe) -> Conclusion:
        """Return the outcome after a probe that says nothing about memory: cancelled, or a worker that was too slow."""
        if probe.outcome is Outcome.CANCELLED:
            return Concluded(Outcome.CANCELLED, probe.reason)
        doing = "decoding at the end of" if probe.is_proof else "making"
        reason = (
            f"{doing} n_ctx {format_count(probe.n_ctx)}: {probe.reason}; a longer --timeout would let it finish"
        )
        is_found = probe.n_ctx == self._created or (probe.is_proof and self._bracket.passed is not None)
        return Concluded(Outcome.COMPLETED if is_found else Outcome.TIMED_OUT, reason)

    def _explain_load(self, ended: EngineEnded) -> Conclusion:
        session, seen = self._session, self._seen
        assert session.file is not None
        session.begin(None)
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
        needed_bytes = seen.needed_bytes or weight_bytes
        what = f"{self._name} does not fit into {format_bytes(budget.held_bytes)} of {budget.place}"
        if needed_bytes > budget.held_bytes:  # a limit of address space also counts what is only mapped
            of = "" if self._session.setup.unsupported(EstimateMemory) else f" for {self._step} tokens"
            what += f": it needs {format_bytes(needed_bytes)}{of}"
        advice = "try a smaller quant; ggbench plan shows what fits"
        if budget.on_gpu and not self._session.setup.engine_option:
            advice += "; -ngl N puts only N layers on the GPU"
        return DoesNotFit(what, advice)
