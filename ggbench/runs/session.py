"""A run from the experiment's view: a file, an engine, and a recorder of observations."""

from __future__ import annotations

import queue
import statistics
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from msgspec import field
from msgspec.structs import replace

from ggbench.engines.contract import DEFAULT_TIMEOUT_S, Engine, EngineConfig, Source, Workload, engine_module
from ggbench.engines.endings import Completed, Ending
from ggbench.engines.events import (
    Allocated,
    Event,
    Loaded,
    Memory,
    Opened,
    Opening,
    PromptRead,
    Proving,
    ReadingPrompts,
    Ready,
    RequestEnded,
    ServerAnswered,
    Steps,
    TokensTogether,
)
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import DoesNotFit, Unsupported
from ggbench.gguf_file.model_file import ModelFile
from ggbench.machine.bandwidth import cached_bandwidth
from ggbench.machine.environment import environment
from ggbench.machine.gpus import find_cuda_gpu, gpu_bandwidth
from ggbench.machine.host import default_threads, describe_ram
from ggbench.machine.readings import MachineReader
from ggbench.machine.records import Environment, MachineReading
from ggbench.models.subject import Subject
from ggbench.models.targets import Target, materialize
from ggbench.record import Record
from ggbench.runs.progress import Measuring, ModelReady, PointMeasured, Progress, SamplesTimed, Stage, Working
from ggbench.runs.reading_log import READING_INTERVAL_S
from ggbench.runs.recording import GpusInUse, ModelDescribed, PromptTiming, Recorder, WorkerStarted
from ggbench.runs.run import Settings
from ggbench.runs.store.database import Store
from ggbench.runs.store.runs import WARMUP
from ggbench.sizing.budget import free_budget
from ggbench.sizing.theory.kv_cache import kv_cache
from ggbench.sizing.theory.limits import decode_limit
from ggbench.sizing.theory.offload import check_overrides
from ggbench.stats.decode_timing import Bandwidth, DecodeLimit
from ggbench.units import format_bytes, format_count, format_ms

_S = TypeVar("_S", bound=Settings)


class RunContext(Record):
    """Created for each command or screen; tests create one with a fake engine and a store in a temporary folder."""

    launch: Callable[[EngineConfig, threading.Event], Engine]
    """Starts the engine of a setup, which stops when the event is set."""
    threads: int
    """Default for setups without one."""
    describe_environment: Callable[[Mapping[str, str]], Environment]
    """Makes the environment from the versions that an engine reports."""
    store: Store | None = None
    """None stores nothing."""
    cpu_bandwidth: Bandwidth | None = None
    given_bandwidth: Bandwidth | None = None
    """Given by the user; overrides a measured or reported value."""
    cancel: threading.Event = field(default_factory=threading.Event)
    read_machine: Callable[[], MachineReading] | None = None
    """Called during every run, from a separate thread; None for no readings."""
    reading_interval_s: float = READING_INTERVAL_S
    show_reading: Callable[[MachineReading], None] = lambda reading: None
    """Called with each reading, in that thread."""

    def bandwidth_of(self, allocated: Allocated, env: Environment | None) -> Bandwidth | None:
        """Return the bandwidth that bounds a decode with these buffers; None if weights are in memories of different
        speeds.
        """
        if self.given_bandwidth is not None:
            return self.given_bandwidth
        on_gpu = [
            buffers.device for buffers in allocated.buffers if buffers.weight_bytes and not buffers.is_host
        ]
        if not on_gpu:
            return self.cpu_bandwidth
        if len(on_gpu) > 1 or not allocated.is_all_offloaded or env is None:
            return None
        gpu = find_cuda_gpu(env.gpus, on_gpu[0], dict(allocated.device_ids).get(on_gpu[0]))
        return None if gpu is None else gpu_bandwidth(gpu)


def run_context(
    store: Store | None,
    *,
    given_bandwidth: Bandwidth | None = None,
    timeout_s: float | None = None,
    needs_bandwidth: bool = True,
) -> RunContext:
    """Return the context for runs on this machine; the first call measures main memory's bandwidth, in a second or
    two.
    """
    threads = default_threads()
    measures = needs_bandwidth and given_bandwidth is None
    seconds = DEFAULT_TIMEOUT_S if timeout_s is None else timeout_s

    def launch(setup: EngineConfig, cancel: threading.Event) -> Engine:
        return engine_module(setup.engine).launch(cancel, timeout_s=seconds)

    return RunContext(
        launch=launch,
        threads=threads,
        describe_environment=environment,
        store=store,
        cpu_bandwidth=cached_bandwidth(threads) if measures else None,
        given_bandwidth=given_bandwidth,
        read_machine=MachineReader().read,
    )


class Base(Record):
    """The base of a comparison: another quant of the model, or the same one with another KV cache."""

    target: Target
    type_k: str = "f16"
    type_v: str = "f16"


class Session:
    """An experiment's access to its target and engine, recording their events."""

    def __init__(
        self,
        context: RunContext,
        recorder: Recorder,
        target: Target,
        setup: EngineConfig,
        base: Base | None,
        draft: Target | None,
    ) -> None:
        self.context = context
        self.cancel = context.cancel
        """Set when the user stops the run."""
        self.target = target
        self.base = base
        self.draft = draft
        self.setup = setup
        """The setup for loading the target, with the machine's threads filled in."""
        self.recorder = recorder
        self.file: ModelFile | None = None
        """None until it is prepared or its header is read."""
        self.environment: Environment | None = None
        """None until an engine is ready."""
        self.allocated: Allocated | None = None
        """Buffers of the last model and context; None before the engine reported any."""
        self.memory = Memory()
        """Memory of the last context."""
        self.left_bytes: int | None = None
        """Free bytes after the last load or context; None without a limit, or if the engine does not say."""
        self._engine: Engine | None = None
        self._is_loaded = False
        self._n_timed = 0
        """Steps of which progress was reported."""

    def settings(self, kind: type[_S]) -> _S:
        return self.recorder.recording.settings(kind)

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            self._engine = self.context.launch(self.setup, self.cancel)
        return self._engine

    def prepare(self) -> Measuring[None]:
        """Make or download the target's file if needed; do nothing for a server."""
        if not self.target.is_served:
            yield from self.prepare_file()

    def prepare_file(self) -> Measuring[ModelFile]:
        """Return the target's file, making or downloading it first if needed."""
        self.use_file((yield from made_file(self.target, self.cancel)))
        self.recorder.skip_readings()
        assert self.file is not None
        return self.file

    def use_file(self, file: ModelFile) -> None:
        """Set the subject from this file or header. Raises UsageError if an override matches none of its tensors."""
        self.file = file
        recording = self.recorder.recording
        recording.head = replace(recording.head, subject=subject_of(self.target, file, self.setup))
        if self.setup.tensor_overrides:
            check_overrides(file, LlamaConfig.of(self.setup))

    def open(
        self,
        setup: EngineConfig | None = None,
        path: Path | None = None,
        draft: Path | None = None,
        reserve_bytes: int = 0,
    ) -> Measuring[Ending]:
        """Load the file, create a context, and record their memory; by default with the run's own setup and file.

        A `draft` is loaded beside it, with a context of its own; `reserve_bytes` of each GPU stay free.

        Without an n_ctx, the run's setup gets just enough for the settings. Raises DoesNotFit for one that needs more
        than all memory.
        """
        needed = self.recorder.recording.head.settings.n_ctx_needed
        if setup is None:
            setup = self.setup if needed is None else self.setup.holding(needed)
            self._check_memory(setup)
        path = path or (self.file.paths[0] if self.file and self.file.paths else None)
        opened = self.engine.open(Source(path, draft), setup, reserve_bytes=reserve_bytes)
        ending = yield from self._follow(opened, series="", n_total=0)
        if not isinstance(ending, Completed) and self.allocated is not None:
            found = self.allocated
            self.recorder.observe(
                Memory(buffers=found.buffers, tensor_bytes=found.tensor_bytes, flash_attn=found.flash_attn)
            )
            self._observe_gpus(found)
            if self._is_loaded:
                self._observe_limit()
        return ending

    def _check_memory(self, setup: EngineConfig) -> None:
        """Raise DoesNotFit for a KV cache larger than all free memory, which would fail only after the load."""
        if self.file is None or setup.cache_types is None or setup.n_ctx is None:
            return
        try:
            needed = int(kv_cache(self.file, *setup.cache_types).cached_bytes(setup.n_ctx))
        except Unsupported:
            return
        if needed <= describe_ram().total_bytes:
            return  # the engine says the rest
        budget = free_budget(setup, None)
        free = budget.memory_bytes + (budget.beside.free_bytes if budget.beside else 0)
        if needed > free:
            what = f"the KV cache of {format_count(setup.n_ctx)} tokens needs {format_bytes(needed)}"
            hint = "decode or read fewer tokens; ggbench plan MODEL says the longest context"
            raise DoesNotFit(f"{what}, but only {format_bytes(free)} of memory are free", hint)

    def run(
        self, workload: Workload, series: str = "", n_total: int = 0, events: list[Event] | None = None
    ) -> Measuring[Ending]:
        """Run a workload, recording its steps in `series`, for a run that times `n_total` steps.

        Raises UsageError for one that the engine cannot run. Events not recorded here are added to `events`.
        """
        self.setup.require(type(workload))
        ending = yield from self._follow(self.engine.run(workload), series, n_total, events)
        self.recorder.flush()
        return ending

    def ask(self, workload: Workload) -> Generator[Progress, None, tuple[list[Event], Ending]]:
        """Run a workload whose events the experiment itself records. Raises like `run`."""
        events: list[Event] = []
        ending = yield from self.run(workload, events=events)
        return events, ending

    def begin(self, environment: Environment | None) -> None:
        """Open the run in the store, as soon as an engine is ready or has failed to start."""
        self.environment = self.environment or environment
        if not self.recorder.has_begun:
            head = replace(self.recorder.recording.head, environment=self.environment)
            self.recorder.begin(head)

    def close(self) -> None:
        """Stop the engine, after recording its peak memory."""
        self.recorder.flush()
        self.recorder.end_readings()
        if self._engine is not None:
            self._engine.close()

    def _follow(
        self, events: Iterator[Event | Ending], series: str, n_total: int, others: list[Event] | None = None
    ) -> Measuring[Ending]:
        ending: Ending | None = None
        for event in events:
            match event:
                case Ending():
                    ending = event
                case Ready() | Opening() | Allocated() | Loaded() | Opened():
                    yield from self._load(event)
                case ReadingPrompts() | PromptRead():
                    yield from self._read_prompts(event)
                case Steps():
                    yield from self._time_steps(event, series, n_total)
                case ServerAnswered(found):
                    self.recorder.observe(found)
                case TokensTogether(found, seq) | RequestEnded(found, seq):
                    self.recorder.observe(replace(found, series=_series_of(series, seq)))
                case Proving(share):
                    yield Working("probe", share, 1.0)
                case _ if others is not None:
                    others.append(event)
        assert ending is not None
        self.begin(None)
        return ending

    def _load(self, event: Ready | Opening | Allocated | Loaded | Opened) -> Iterator[Progress]:
        match event:
            case Ready():
                if event.pid is not None:
                    self.recorder.observe(WorkerStarted(event.pid))
                self.begin(self.context.describe_environment(event.versions))
            case Opening(share):
                yield Working("load", share, 1.0)
            case Allocated():
                self.allocated = event
            case Loaded():
                self._is_loaded, self.left_bytes = True, event.left_bytes
                if event.description:
                    self.recorder.observe(ModelDescribed(event.description))
            case Opened():
                allocated = self.allocated or Allocated(())
                self.memory, self.left_bytes = event.memory(allocated), event.left_bytes
                self.recorder.observe(self.memory)
                self._observe_gpus(allocated)
                yield ModelReady(self.memory, self.recorder.run_id, self._observe_limit())

    def _read_prompts(self, event: ReadingPrompts | PromptRead) -> Iterator[Progress]:
        if isinstance(event, ReadingPrompts):
            text = f"reading prompts of {format_count(event.n_prompt)}" if event.n_prompt is not None else ""
            yield Working("prompt", event.share, 1.0, text)
            return
        timing = PromptTiming(event.n_prompt, event.elapsed_ns, event.n_seqs, n_asked=event.n_asked)
        self.recorder.observe(timing)
        self.recorder.keep_readings()
        times = self.recorder.recording.prompt_ns.get(event.n_prompt, [event.elapsed_ns])
        median = f", the median of {len(times)}" if len(times) > 1 else ""
        elapsed_ms = statistics.median(times) / 1e6
        yield PointMeasured(f"prompt of {event.n_prompt}: {format_ms(elapsed_ms)} ms{median}", timing)

    def _time_steps(self, event: Steps, series: str, n_total: int) -> Iterator[Progress]:
        name = _series_of(series, event.seq)
        self.recorder.add_steps(name, event)
        if n_total and not series.startswith(WARMUP) and not event.seq:  # of several, the first
            step_ns = tuple(event.step_ns)
            self._n_timed += len(step_ns)
            yield SamplesTimed(name, event.first_position, step_ns, self._n_timed, n_total)

    def _observe_gpus(self, allocated: Allocated) -> None:
        """Record which GPUs have buffers, but only if NVML lists all of them."""
        gpus = self.environment.gpus if self.environment else ()
        found = [find_cuda_gpu(gpus, device, device_id) for device, device_id in allocated.gpu_devices]
        if found and all(found):
            self.recorder.observe(GpusInUse(tuple(gpu.index for gpu in found if gpu is not None)))

    def _observe_limit(self) -> DecodeLimit | None:
        limit = self.limit(1)
        if limit is not None:
            self.recorder.observe(limit)
        return limit

    def limit(self, n_seqs: int) -> DecodeLimit | None:
        """Return the bandwidth limit of a decode of `n_seqs` sequences; None if unknown.

        It is unknown if weights and cache are in memories of different speeds, unless the user gave a bandwidth for
        both.
        """
        file, setup, allocated = self.file, self.setup, self.allocated or Allocated(())
        if file is None or setup.cache_types is None:
            return None
        is_mixed = self.context.given_bandwidth is None and self._is_beside_gpu(allocated)
        bandwidth = None if is_mixed else self.context.bandwidth_of(allocated, self.environment)
        if bandwidth is None:
            return None
        try:
            return decode_limit(file, bandwidth, *setup.cache_types, n_seqs)
        except Unsupported:
            return None

    def _is_beside_gpu(self, allocated: Allocated) -> bool:
        """Return whether some weights or the cache may be in main memory though weights are on a GPU."""
        setup = self.setup
        return Memory(buffers=allocated.buffers).weights_on_gpu and (
            bool(setup.tensor_overrides) or not setup.kv_offload
        )


def _series_of(series: str, seq: int | None) -> str:
    """Return the series of one sequence of a series of several: `decode/i64/b4/s0`."""
    return series if seq is None or not series else f"{series}/s{seq}"


def subject_of(target: Target, file: ModelFile | None, setup: EngineConfig) -> Subject:
    """Return the subject as described by the file's header, or as far as known without a file."""
    if file is None:
        return target.subject
    return replace(
        target.subject,
        file=str(file.paths[0].absolute()) if file.paths else "",
        file_bytes=file.file_bytes,
        header_sha256=file.header_sha256,
        shape_key=file.shape_key,
        n_params=file.n_params,
        bpw=file.bpw,
        weight_bytes=file.weight_bytes,
        kv_bytes_per_token=kv_bytes_per_token(file, setup),
        n_ctx_train=file.n_ctx_train,
        architecture=file.architecture or None,
        n_layer=file.n_layer or None,
        n_embd=file.n_embd or None,
        breaks=file.breaks,
    )


def kv_bytes_per_token(file: ModelFile, setup: EngineConfig) -> int | None:
    """Return the bytes of both caches in their types; None if the header does not determine them."""
    if setup.cache_types is None:
        return None
    try:
        return file.kv_bytes_per_token(*setup.cache_types)
    except Unsupported:
        return None


def made_file(target: Target, cancel: threading.Event) -> Generator[Working, None, ModelFile]:
    """Make the target's file in a thread, to report progress.

    Raises CancelledError once `cancel` is set, and like `materialize`.
    """
    updates: queue.SimpleQueue[Working | None] = queue.SimpleQueue()
    stage: Stage = "download" if target.download_bytes > 0 else "write"
    abandoned = threading.Event()

    def on_progress(done_bytes: int, total_bytes: int) -> None:
        if cancel.is_set() or abandoned.is_set():
            raise CancelledError
        updates.put(Working(stage, done_bytes, total_bytes, target.quant))

    with ThreadPoolExecutor(max_workers=1) as pool:
        file = pool.submit(materialize, target, on_progress)
        file.add_done_callback(lambda _: updates.put(None))
        try:
            while (update := updates.get()) is not None:
                yield update
        finally:
            abandoned.set()
    return file.result()
