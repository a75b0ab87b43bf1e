"""The user's own llama-server as an engine: started for each load, measured over HTTP by its own clock, and ended.

It runs with the flags of the commands that `ggbench pick` prints, on a free port of the loopback interface, with a
random key. A step includes its sampler and the server's own work between two tokens, which the engine of ggbench does
not have.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path

from msgspec.structs import replace

from ggbench import paths
from ggbench.engines.contract import (
    DEFAULT_TIMEOUT_S,
    BatchedDecode,
    Continue,
    Decode,
    DecodeAtDepth,
    EngineConfig,
    ProveContext,
    Source,
    Workload,
)
from ggbench.engines.endings import Cancelled, Completed, Crashed, Ending, Failed, OutOfMemory, TimedOut
from ggbench.engines.events import (
    ContextProven,
    Continued,
    Event,
    Loaded,
    Opened,
    PromptRead,
    Proving,
    ReadingPrompts,
    Ready,
    Steps,
    TokensTogether,
)
from ggbench.engines.failure_lines import is_out_of_memory
from ggbench.engines.http.program import NAME, Build, describe_build, refused_option, split_command
from ggbench.engines.llama.config import whole_steps
from ggbench.engines.llama.flags import server_flags
from ggbench.engines.llama.rpc import why_unreachable
from ggbench.engines.llama_server.answers import answer
from ggbench.engines.llama_server.config import SERVED_AT, LlamaServerConfig
from ggbench.engines.llama_server.process import ServerProcess
from ggbench.engines.server.client import Client
from ggbench.engines.server.engine import EndpointEngine
from ggbench.errors import GgbenchError, NetworkError
from ggbench.gguf_file import gguf_constants
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.twin import with_vocabulary
from ggbench.text import shorten

CONFIG = LlamaServerConfig

_POLL_S = 0.05


def launch(
    cancel: threading.Event, *, timeout_s: float = DEFAULT_TIMEOUT_S, hold: threading.Event | None = None
) -> LlamaServerEngine:
    """Return an engine whose server ends when `cancel` is set, and gets no request while `hold` is set."""
    return LlamaServerEngine(cancel, timeout_s=timeout_s, hold=hold)


class LlamaServerEngine(EndpointEngine):
    def __init__(
        self, cancel: threading.Event, *, timeout_s: float, hold: threading.Event | None = None
    ) -> None:
        super().__init__(cancel, timeout_s=timeout_s, hold=hold)
        self._process: ServerProcess | None = None
        self._builds: dict[tuple[str, ...], Build] = {}
        self._n_ctx = 0
        """The context that the server was started with, of all slots."""
        self._n_seq_max = 1

    def open(self, source: Source, setup: EngineConfig, *, reserve_bytes: int = 0) -> Iterator[Event | Ending]:
        """Start the server and wait until it has loaded the model; without an n_ctx, with the smallest context."""
        if not isinstance(setup, LlamaServerConfig) or source.path is None:
            yield Failed("load", f"{NAME} loads GGUF files only")
            return
        self.close()
        if unreachable := why_unreachable(setup.servers):  # llama.cpp would abort
            yield Failed("load", unreachable)
            return
        began = time.perf_counter()
        try:
            build = self._build(setup.program_words)
            process = self._process = self._start(build, setup, source.path, source.draft)
        except GgbenchError as error:
            yield Failed("start", error.message, error)
            return
        ending = self._wait_until_loaded(process)
        process.stop_keeping()
        refusal: GgbenchError | None = None
        if isinstance(ending, Crashed):
            refusal = refused_option(ending.message, setup.words, build)
        elif isinstance(ending, Completed):
            refusal = process.deviation(drafts=bool(setup.spec_type))
        if refusal is not None:
            ending = Failed("load", refusal.message, refusal)
        yield Ready(process.pid, process.versions(build))
        if isinstance(ending, Completed):
            ending = yield from self._opened(process, time.perf_counter() - began)
        process.is_busy = False
        if not isinstance(ending, Completed):
            self.close()
        yield ending

    def _start(self, build: Build, setup: LlamaServerConfig, path: Path, draft: Path | None) -> ServerProcess:
        """Raises GgbenchError for drafts that the build cannot make, and like `_with_tokens`."""
        if setup.spec_type:
            build.check_drafts(setup.spec_type, rejects_all=setup.rejects_all)
        flags = ["-lv", "4"] if build.can_trace else []
        self._n_ctx = setup.n_ctx or whole_steps(1) * setup.n_streams
        self._n_seq_max, limit_bytes = setup.n_seq_max, setup.memory_limit_bytes
        given = server_flags(
            replace(setup, n_ctx=self._n_ctx, mmap=setup.mmap and limit_bytes is None),
            on_gpu=True,
            draft=[] if draft is None else ["-md", str(_with_tokens(draft))],
            spec_type=setup.spec_type,
            n_draft=setup.n_draft,
        )
        program, own = split_command(setup.words)
        command = [*program, "-m", str(_with_tokens(path)), *build.flags_of(given), *SERVED_AT, *flags, *own]
        n_threads = (setup.threads or 0) + (setup.threads_batch or 0)
        return ServerProcess(command, limit_bytes=limit_bytes, n_threads=n_threads)

    def run(self, workload: Workload) -> Iterator[Event | Ending]:
        """Run a workload like an endpoint; a server that died in the middle is a crash, with its log's cause."""
        if self._process is None:
            yield Failed(workload.stage, f"no {NAME} is running")
            return
        if isinstance(workload, ProveContext):
            yield from self._prove(workload)
            return
        if isinstance(workload, Continue):
            yield from self._continue(workload)
            return
        is_timed, asked = not isinstance(workload, Decode | BatchedDecode | DecodeAtDepth), workload
        if isinstance(workload, DecodeAtDepth):
            # the token that comes with the prompt is the untimed one, so the first timed step has the same position
            asked = Decode(workload.n_depth + 1, workload.n_gen)
        for item in self._run_watched(asked):
            match item:
                case PromptRead() if asked is not workload:
                    continue
                case Steps() | TokensTogether():
                    is_timed = True
                case Ending():
                    if isinstance(item, Completed) and not is_timed:
                        item = Failed(workload.stage, f"this {NAME} is too old: it does not time its tokens")
                    yield self._explained(item, workload)
                    return
            yield item

    def close(self) -> None:
        super().close()
        if self._process is not None:
            self._process.close()
        self._process = None

    def _continue(self, workload: Continue) -> Iterator[Event | Ending]:
        """Answer a text; a server that died in the middle is a crash, with its log's cause."""
        process, server = self._process, self._server
        assert process is not None and server is not None
        answered: Continued | Ending
        try:
            with self._busy():
                answered = answer(server, self._model.name, workload, self._cancel)
        except NetworkError as error:
            answered = Crashed(error.message)
        except GgbenchError as error:
            answered = Failed(workload.stage, error.message, error)
        if isinstance(answered, Continued):
            yield answered
            yield Completed()
        else:
            yield self._explained(Cancelled() if self._cancel.is_set() else answered, workload)

    def _prove(self, workload: ProveContext) -> Iterator[Event | Ending]:
        """Fill all slots at the same time with prompts, and generate at their last positions.

        A slot that llama-server cuts to the training context leaves cells free, so the proof is not full.
        """
        n_slot = self._model.n_ctx or self._n_ctx
        n_slots = max(1, min(self._n_seq_max, self._n_ctx // n_slot))
        for item in self._run_watched(
            BatchedDecode(n_slot - 2, 1, n_slots)
        ):  # it never uses the last cell of a slot
            match item:
                case ReadingPrompts(share):
                    yield Proving("fill", share)
                case Ending():
                    if isinstance(item, Completed):
                        yield ContextProven(full=n_slots * n_slot >= self._n_ctx)
                    yield self._explained(item, workload)

    def _run_watched(self, workload: Workload) -> Iterator[Event | Ending]:
        """Run a workload like an endpoint; a server that gets stuck in it at its memory limit is ended."""
        with self._busy():
            yield from super().run(workload)

    @contextlib.contextmanager
    def _busy(self) -> Iterator[None]:
        """Wait while held, when the server may sleep; then it may not."""
        self._wait_while_held()
        process = self._process
        assert process is not None
        process.is_busy = True
        try:
            yield
        finally:
            process.is_busy = False

    def _build(self, program: list[str]) -> Build:
        key = tuple(program)
        if key not in self._builds:
            self._builds[key] = describe_build(program)
        return self._builds[key]

    def _wait_until_loaded(self, process: ServerProcess) -> Ending:
        while not self._has_loaded(process):
            if process.has_ended:
                return process.ending("load")
            if self._cancel.is_set():
                return Cancelled()
            if process.silent_s > self._timeout_s:
                return TimedOut(self._timeout_s, NAME)
            time.sleep(_POLL_S)
        return Completed()

    def _has_loaded(self, process: ServerProcess) -> bool:
        """Ask the server, once its log names its port."""
        if process.port is None:
            return False
        with contextlib.suppress(GgbenchError), Client(process.address, timeout_s=self._timeout_s) as client:
            return client.get("/health").status == 200
        return False

    def _opened(self, process: ServerProcess, seconds: float) -> Generator[Event, None, Ending]:
        try:
            _, answered = self._connect(process.address)
        except GgbenchError as error:
            return process.ending("load") if process.ends_soon() else Failed("load", error.message, error)
        yield replace(process.allocated(), tensor_bytes=self._model.tensor_bytes)
        yield answered
        yield Loaded(seconds, tensor_bytes=self._model.tensor_bytes)
        sizes = process.context_sizes()
        yield Opened(
            seconds, sizes.get("n_ctx", self._model.n_ctx), sizes.get("n_batch"), sizes.get("n_ubatch")
        )
        return Completed()

    def _explained(self, ending: Ending, workload: Workload) -> Ending:
        """Return the server's own ending for a failed request if it has died, or lacked memory."""
        process = self._process
        if isinstance(ending, Crashed | Failed) and process is not None and process.ends_soon():
            return process.ending(workload.stage)
        if isinstance(ending, Failed) and is_out_of_memory(ending.message):
            return OutOfMemory(workload.stage, shorten(ending.message, 200))
        return ending


def _with_tokens(path: Path) -> Path:
    """Return the file, or for a twin, at whose lack of a tokenizer llama-server aborts, a copy with one.

    Raises BadFile, Unsupported, and DoesNotFit if the disk lacks room.
    """
    file = read_model_file(path)
    is_without = file.metadata.get(gguf_constants.Keys.Tokenizer.MODEL) == "none"
    return with_vocabulary(file, paths.twins_dir()) if file.is_twin and is_without else path
