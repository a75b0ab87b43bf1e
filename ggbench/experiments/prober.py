"""Real contexts of one model, made and freed in one worker; a worker that dies is replaced at the next question."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import replace

from ggbench.engine import protocol
from ggbench.engine.endings import Completed, Crashed, Ending, Failed, OutOfMemory, TimedOut
from ggbench.engine.logs import Allocations, parse_allocations
from ggbench.engine.process import Engine
from ggbench.experiments.progress import ModelLoading
from ggbench.experiments.rig import Rig
from ggbench.experiments.search_progress import FarEndFilling, SearchProgress
from ggbench.gguf_file.model_file import ModelFile
from ggbench.machine.memory import peak_rss_bytes
from ggbench.records import Environment, LoadConfig, Probe


class LoadEnded(Exception):
    """The model did not load; `ending` says how."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.reason)
        self.ending = ending


class Prober:
    """Asks for contexts of one file. `close` ends the worker."""

    def __init__(
        self, rig: Rig, file: ModelFile, config: LoadConfig, *, limit_bytes: int | None, reserve_bytes: int = 0
    ) -> None:
        """`limit_bytes` is what model and context may take; None leaves a GPU as it is, but for the reserve."""
        self._rig, self._file, self._config = rig, file, config
        self._limit_bytes, self._reserve_bytes = limit_bytes, reserve_bytes
        self._engine: Engine | None = None
        self._pid: int | None = None
        self._load_log: list[str] = []
        self._log: list[str] = []
        self._live_n_ctx: int | None = None
        self._proof: protocol.ContextProven | None = None
        self.environment: Environment | None = None
        """None until a worker was ready."""
        self.batch_sizes: tuple[int, int] | None = None
        """n_batch and n_ubatch as llama.cpp made them in the last context; None before one."""
        self.left_bytes: int | None = None
        """What the last load or context left to take; None where llama.cpp has no limit, or no worker told."""

    @property
    def allocations(self) -> Allocations:
        """Of the load and the last context."""
        return parse_allocations([*self._load_log, *self._log])

    @property
    def was_full(self) -> bool:
        """Whether the last proof left llama.cpp no cell, so that it really was at the far end."""
        return self._proof is not None and self._proof.full

    @property
    def peak_bytes(self) -> int | None:
        """The most memory that the worker had resident; None where it is gone."""
        return None if self._pid is None else peak_rss_bytes(self._pid)

    def load(self) -> Generator[SearchProgress]:
        """Load the model, in a new worker where there is none. Raises LoadEnded."""
        self._engine = self._engine or self._rig.launch(self._rig.cancel)
        self._live_n_ctx = None
        self._log = []
        ending = yield from self._call(
            protocol.LoadModel(
                path=str(self._file.paths[0]),
                n_gpu_layers=self._config.n_gpu_layers,
                main_gpu=self._config.main_gpu,
                tensor_split=self._config.tensor_split,
                memory_limit_bytes=self._limit_bytes,
                reserve_bytes=self._reserve_bytes,
            )
        )
        self._load_log = self._log
        self._log = []
        if not isinstance(ending, Completed):
            self.close()
            raise LoadEnded(ending)

    def allocate(self, n_ctx: int) -> Generator[SearchProgress, None, Probe]:
        """Make a context in place of the last one. Raises LoadEnded where a new worker was needed and did not load."""
        if self._engine is None:
            yield from self.load()
        config, started = self._config, time.perf_counter()
        self._log, self._live_n_ctx = [], None
        assert config.threads is not None
        ending = yield from self._call(
            protocol.MakeContext(
                n_ctx=n_ctx,
                n_batch=config.n_batch,
                n_ubatch=config.n_ubatch,
                type_k=config.type_k,
                type_v=config.type_v,
                flash_attn=config.flash_attn,
                threads=config.threads,
            )
        )
        seconds = time.perf_counter() - started
        told = parse_allocations(self._log)
        if isinstance(ending, Completed):
            self._live_n_ctx = n_ctx
            kv_bytes, compute_bytes = told.total("kv_bytes"), told.total("compute_bytes")
            return Probe(n_ctx, "alloc", ending.outcome, seconds, kv_bytes, compute_bytes)
        return Probe(n_ctx, "alloc", ending.outcome, seconds, reason=ending.reason)

    def prove(self, n_ctx: int) -> Generator[SearchProgress, None, Probe]:
        """Decode at the far end of a context, made first where it is not the last one. Raises as `allocate`.

        After a decode that failed the worker is ended, since nobody knows in what state it is.
        """
        started = time.perf_counter()
        if self._live_n_ctx != n_ctx:
            made = yield from self.allocate(n_ctx)
            if not made.passed:
                return replace(made, kind="decode")
        told = parse_allocations(self._log)
        self._proof, self._live_n_ctx = None, None
        ending = yield from self._call(protocol.ProveContext())
        if not isinstance(ending, Completed):
            self.close()
        return Probe(
            n_ctx,
            "decode",
            ending.outcome,
            time.perf_counter() - started,
            told.total("kv_bytes"),
            told.total("compute_bytes"),
            ending.reason,
        )

    def close(self) -> None:
        """End the worker; the next question starts another."""
        if self._engine is not None:
            self._engine.close()
        self._engine = self._pid = self.left_bytes = self._live_n_ctx = None

    def _call(self, request: protocol.Request) -> Generator[SearchProgress, None, Ending]:
        assert self._engine is not None
        ending: Ending = Failed("start", "the worker said nothing")
        for item in self._engine.call(request):
            match item:
                case protocol.Ready():
                    self._pid = item.pid
                    if self.environment is None:
                        self.environment = self._rig.describe_environment(
                            item.llama_cpp_python, item.llama_cpp, item.system_info
                        )
                case protocol.Log():
                    self._log.append(item.text)
                case protocol.Loading(share):
                    yield ModelLoading(self._file, share)
                case protocol.Filling(share):
                    yield FarEndFilling(share)
                case protocol.ModelLoaded() | protocol.ContextMade():
                    self.left_bytes = item.left_bytes
                    if isinstance(item, protocol.ContextMade):
                        self.batch_sizes = item.n_batch, item.n_ubatch
                case protocol.ContextProven():
                    self._proof, self.left_bytes = item, item.left_bytes
            if isinstance(item, Ending):
                ending = item
        if isinstance(ending, Crashed | TimedOut) or (isinstance(ending, OutOfMemory) and not ending.alive):
            self.close()
        return ending
