"""Real contexts of one model, made and freed in one worker; a worker that dies is replaced at the next question."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping

from msgspec.structs import replace

from ggbench.engines.contract import Engine, EngineConfig, Source
from ggbench.engines.endings import Completed, Ending, EngineEnded, Outcome, OutOfMemory
from ggbench.engines.events import Allocated, ContextProven, Event, Loaded, Memory, Opened, Opening, Proving, Ready
from ggbench.engines.workloads import ProveContext
from ggbench.experiments.maxctx.record import Probe, ProofForeseen
from ggbench.gguf_file.model_file import ModelFile
from ggbench.machine.host import peak_rss_bytes
from ggbench.runs.progress import PointMeasured, Progress, Working
from ggbench.units import format_count, format_duration

_LONG_S = 10.0
"""A proof that takes less is not announced."""
_PROVING = {"fill": "filling the context before a decode at its far end", "batch": "decoding a batch at the far end"}


class ContextProber:
    """Makes contexts of one file. `close` ends the worker."""

    def __init__(
        self,
        engine: Engine,
        file: ModelFile,
        setup: EngineConfig,
        *,
        reserve_bytes: int = 0,
        begin: Callable[[Mapping[str, str] | None], None] = lambda _: None,
    ) -> None:
        """`reserve_bytes` of each GPU are left free; the setup's memory limit is what model and context may take.

        `begin` is told the versions of an engine that is ready, and None after an answer.
        """
        self._engine, self._source, self._setup, self._begin = engine, Source(file.paths[0]), setup, begin
        self._reserve_bytes = reserve_bytes
        self._pid: int | None = None
        self._live_n_ctx: int | None = None
        self._proof: ContextProven | None = None
        self._is_foreseen = False
        self.allocated = Allocated(())
        """Of the load and the last context."""
        self.memory = Memory()
        """Of the last context that was made."""
        self.left_bytes: int | None = None
        """What the last load or context left to take; None where llama.cpp has no limit, or no worker reported it."""

    @property
    def was_full(self) -> bool:
        """Whether the last proof left llama.cpp no cell, so that it really was at the far end."""
        return self._proof is not None and self._proof.full

    @property
    def peak_bytes(self) -> int | None:
        """The most memory that the worker had resident; None where it is gone."""
        return None if self._pid is None else peak_rss_bytes(self._pid)

    def load(self) -> Generator[Progress]:
        """Load the model. Raises EngineEnded."""
        self._live_n_ctx = None
        ending = yield from self._follow(self._open(None))
        if not isinstance(ending, Completed):
            self.close()
            raise EngineEnded(ending)

    def allocate(self, n_ctx: int) -> Generator[Progress, None, Probe]:
        """Make a context in place of the last one. Raises EngineEnded where a new worker does not load."""
        if self._pid is None:
            yield from self.load()
        self._live_n_ctx = None
        started = time.perf_counter()
        ending = yield from self._follow(self._open(n_ctx))
        seconds = time.perf_counter() - started
        if not isinstance(ending, Completed):
            return _with_blame(Probe(n_ctx, "alloc", ending.outcome, seconds), ending)
        self._live_n_ctx = n_ctx
        return Probe(n_ctx, "alloc", Outcome.COMPLETED, seconds, self.memory.kv_bytes, self.memory.compute_bytes)

    def prove(self, n_ctx: int) -> Generator[Progress, None, Probe]:
        """Decode at the far end of a context, made first where it is not the last one. Raises as `allocate`.

        After a decode that failed the worker is ended where its state is unknown.
        """
        started = time.perf_counter()
        if self._live_n_ctx != n_ctx:
            made = yield from self.allocate(n_ctx)
            if not made.passed:
                return made if made.is_answer else replace(made, kind="decode")
        self._proof, self._live_n_ctx = None, None
        self._is_foreseen = False
        ending = yield from self._follow(self._engine.run(ProveContext()))
        if not isinstance(ending, Completed) and not self._setup.survives_failure:
            self.close()
        seconds = time.perf_counter() - started
        sizes = self.memory.kv_bytes, self.memory.compute_bytes
        return _with_blame(Probe(n_ctx, "decode", ending.outcome, seconds, *sizes), ending)

    def close(self) -> None:
        """End the worker; the next question starts another."""
        self._engine.close()
        self._pid = self.left_bytes = self._live_n_ctx = None

    def _foreseen(self, left_s: float) -> PointMeasured:
        n_ctx = self.memory.n_ctx or 0
        text = f"n_ctx {format_count(n_ctx)}: about {format_duration(left_s)} left to decode at its far end"
        return PointMeasured(text if left_s >= _LONG_S else "", ProofForeseen(n_ctx, left_s))

    def _open(self, n_ctx: int | None) -> Iterator[Event | Ending]:
        return self._engine.open(self._source, self._setup.with_context(n_ctx), reserve_bytes=self._reserve_bytes)

    def _follow(self, events: Iterator[Event | Ending]) -> Generator[Progress, None, Ending]:
        ending: Ending | None = None
        for event in events:
            match event:
                case Ready():
                    self._pid = event.pid
                    self._begin(event.versions)
                case Opening(share):
                    yield Working("load", share, 1.0)
                case Proving(stage, share, left_s):
                    if left_s is not None and not self._is_foreseen:
                        self._is_foreseen = True
                        yield self._foreseen(left_s)
                    yield Working("probe", share, 1.0, _PROVING[stage], left_s=left_s)
                case Allocated():
                    self.allocated = event
                case Loaded():
                    self.left_bytes = event.left_bytes
                case Opened():
                    self.left_bytes, self.memory = event.left_bytes, event.memory(self.allocated)
                case ContextProven():
                    self._proof, self.left_bytes = event, event.left_bytes
                case Ending():
                    ending = event
                case _:
                    pass
        assert ending is not None
        self._begin(None)
        if ending.is_final:
            self.close()
        return ending


def _with_blame(probe: Probe, ending: Ending) -> Probe:
    """The probe with why it did not pass."""
    if not isinstance(ending, OutOfMemory):
        return replace(probe, reason=ending.reason)
    return replace(probe, reason=ending.reason, missing_bytes=ending.missing_bytes, device=ending.device)
