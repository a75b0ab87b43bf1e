"""Engines over workers that replay recorded messages, on GPUs and run dry as well, and what runs are made with."""

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from ggbench.engines import protocol
from ggbench.engines.contract import (
    BatchAtDepth,
    BatchedDecode,
    Decode,
    DecodeAtDepth,
    Engine,
    EngineConfig,
    Prefill,
    ProveContext,
    Request,
    Source,
    Speculate,
    TakeTurn,
)
from ggbench.engines.endings import Cancelled, Completed, Ending
from ggbench.engines.events import (
    Allocated,
    ContextProven,
    DeviceBuffers,
    Event,
    Loaded,
    MemoryKind,
    Opened,
    PromptRead,
    Ready,
    Speculated,
    Steps,
    TurnStarted,
)
from ggbench.engines.llama.config import LoadModel, MakeContext
from ggbench.engines.llama.engine import LlamaEngine
from ggbench.extras.transformers.config import LoadCheckpoint, MakeCache, TransformersConfig
from ggbench.extras.transformers.engine import TransformersEngine
from ggbench.machine.environment import environment
from ggbench.machine.records import Gpu
from ggbench.runs.session import RunContext
from ggbench.runs.store.database import Store
from ggbench.stats.decode_timing import Bandwidth

LOG = (
    "load_tensors:   CPU_Mapped model buffer size =   100.00 MiB",
    "llama_kv_cache:        CPU KV buffer size =    24.00 MiB",
    "resolve_fused_ops: Flash Attention enabled",
    "sched_reserve:        CPU compute buffer size =    30.00 MiB",
)
VERSIONS = {"llama_cpp_python": "0.3.36", "llama_cpp": "test", "system_info": "CPU : TEST = 1"}
CHECKPOINT_BYTES, CACHE_BYTES = 4_000_000, 1024
"""Weights, and the cache of one token."""
Answer = Callable[[Request], Iterator[protocol.Message | Ending]]


class FakeWorker:
    """Answers requests as the worker would, with latencies on a line: B 10 ms, W 200 tokens/ms."""

    def __init__(self, cancel: threading.Event, answer: Answer | None = None) -> None:
        self.requests: list[Request] = []
        self.closed = False
        self._cancel = cancel
        self._answer = answer or obey

    def call(self, request: Request) -> Iterator[protocol.Message | Ending]:
        first = not self.requests
        self.requests.append(request)
        if first:
            yield Ready(1, VERSIONS)
        for item in self._answer(request):
            if self._cancel.is_set():
                yield Cancelled()
                return
            yield item

    def close(self) -> None:
        self.closed = True


def obey(request: Request) -> Iterator[protocol.Message | Ending]:
    match request:
        case LoadModel():
            yield protocol.Log(2, LOG[0])
            yield Loaded(0.1)
        case MakeContext(setup):
            yield from (protocol.Log(2, line) for line in LOG[1:])
            yield Opened(0.1, setup.n_ctx, 512, 512)
        case LoadCheckpoint():
            yield Allocated((DeviceBuffers("CPU", MemoryKind.HOST, CHECKPOINT_BYTES),), tensor_bytes=CHECKPOINT_BYTES)
            yield Loaded(0.1, tensor_bytes=CHECKPOINT_BYTES)
        case MakeCache(checkpoint):
            buffers = DeviceBuffers("CPU", MemoryKind.HOST, CHECKPOINT_BYTES, CACHE_BYTES * (checkpoint.n_ctx or 0))
            yield Allocated((buffers,), tensor_bytes=CHECKPOINT_BYTES)
            yield Opened(0.1, checkpoint.n_ctx)
        case ProveContext():
            yield ContextProven(full=True)
        case Prefill(n_prompt, repeat):
            for round_number in range(repeat):
                yield PromptRead(n_prompt, (n_prompt + round_number) * 1_000_000)
        case Decode(n_prompt, n_gen):
            if isinstance(request, TakeTurn):  # the cache lacks the last token
                n_cached = max(0, request.n_kept - 1)
                yield TurnStarted(n_cached, (n_prompt - n_cached) * 1_000_000)
            else:
                yield PromptRead(n_prompt, n_prompt * 1_000_000)
            for start in range(n_prompt + 1, n_prompt + 1 + n_gen, 100):
                positions = range(start, min(start + 100, n_prompt + 1 + n_gen))
                step_ns = [10_000_000 + (n - 1) * 5_000 + n % 7 * 1000 for n in positions]
                yield Steps(start, step_ns, [50_000] * len(step_ns))
        case DecodeAtDepth(n_depth, n_gen):
            first = n_depth + 2
            yield Steps(first, [10_000_000 + (n - 1) * 5_000 for n in range(first, first + n_gen)], [])
            if isinstance(request, BatchAtDepth) and request.n_batch:
                yield PromptRead(request.n_batch, request.n_batch * 1_000_000)
        case Speculate(n_depth, n_drafted, n_single, n_passes):
            token_ns = 10_000_000 + n_depth * 5_000
            step_ns = [token_ns + 2_600_000 + k * 2_500_000 for k in n_drafted]
            yield from (Speculated([token_ns] * n_single, 50_000, step_ns) for _ in range(n_passes))
        case BatchedDecode(n_prompt, n_gen, n_seqs):
            yield PromptRead(n_prompt, n_seqs * n_prompt * 1_000_000, n_seqs)
            for start in range(n_prompt + 1, n_prompt + 1 + n_gen, 100):
                positions = range(start, min(start + 100, n_prompt + 1 + n_gen))
                yield Steps(start, [10_000_000 + (n - 1) * 5_000 * n_seqs + n % 7 * 1000 for n in positions], [])
    yield Completed()


def fake_rig(
    store: Store | None = None, answers: dict[int, Answer] | None = None, cancel: threading.Event | None = None
) -> tuple[RunContext, list[FakeWorker]]:
    """A rig whose n-th worker answers as `answers[n]` says, else obeys; and the workers that it started."""
    workers: list[FakeWorker] = []

    def launch(setup: EngineConfig, event: threading.Event) -> Engine:
        def start() -> FakeWorker:
            workers.append(FakeWorker(event, (answers or {}).get(len(workers))))
            return workers[-1]

        if isinstance(setup, TransformersConfig):
            return TransformersEngine(start, check=lambda method: None)
        return LlamaEngine(start)

    rig = RunContext(
        launch=launch, threads=2, describe_environment=environment, store=store,
        cpu_bandwidth=Bandwidth(20e9, "measured in a test"), cancel=cancel or threading.Event(),
    )  # fmt: skip
    return rig, workers


GPU = Gpu(0, "Card", "GPU-1", "00000000:41:00.0", 24 << 30, 23 << 30, 384, 10501, "580")
WORKER_PID = 1
"""The fake worker's."""
CUDA = "using device CUDA0 (NVIDIA Card (x)) (0000:41:00.0) - 23000 MiB free"
PLACES = protocol.Devices({"CUDA0": MemoryKind.GPU, "CPU": MemoryKind.HOST, "CPU_Mapped": MemoryKind.HOST})


def on_gpu(request: Request) -> Iterator[protocol.Message | Ending]:
    """Answer as a healthy worker whose weights are on a GPU."""
    if isinstance(request, LoadModel):
        yield PLACES
        yield protocol.Log(2, f"load_tensors: {CUDA}")
        yield protocol.Log(2, "load_tensors: offloaded 3/3 layers to GPU")
        yield protocol.Log(2, "load_tensors:        CUDA0 model buffer size =   100.00 MiB")
    yield from obey(request)


def with_gpu(rig: RunContext) -> RunContext:
    environment = replace(rig.describe_environment({}), gpus=(GPU,))
    return replace(rig, describe_environment=lambda _: environment)


DRY_PLACES = protocol.Devices(
    {"CPU": MemoryKind.HOST, "CUDA0": MemoryKind.GPU, "CUDA_Host": MemoryKind.HOST, "CPU_REPACK": MemoryKind.HOST}
)


def fake(answer: Answer) -> LlamaEngine:
    return LlamaEngine(lambda: FakeWorker(threading.Event(), answer))


def dry_answer(kv_mib_per_k: float, device: str = "CPU") -> Answer:
    """A dry run's log, with a cache of `kv_mib_per_k` MiB for 1024 tokens, and 100 MiB of compute on this device."""

    def answer(request: Request) -> Iterator[protocol.Message | Ending]:
        if isinstance(request, LoadModel):
            assert request.dry
            yield DRY_PLACES
            yield protocol.Log(2, "load_tensors: CPU model buffer size = 0.00 MiB")
        elif isinstance(request, MakeContext):
            n_ctx = -(-(request.setup.n_ctx or 0) // 256) * 256
            size = kv_mib_per_k * n_ctx / 1024
            yield protocol.Log(
                2, f"llama_kv_cache: size = {size:.2f} MiB ( {n_ctx} cells, 2 layers, 1/1 seqs), K (f16)"
            )
            yield protocol.Log(2, f"sched_reserve: {device} compute buffer size = 100.00 MiB")
            yield protocol.Log(2, "llama_context: CPU output buffer size = 1.00 MiB")
            yield protocol.Log(2, "sched_reserve: CUDA_Host compute buffer size = 7.00 MiB")
            yield Opened(0.0, n_ctx, 512, 512)
        yield Completed()

    return answer


EngineT = TypeVar("EngineT", bound=Engine)
Script = Mapping[type, tuple[protocol.Message | Ending, ...]]


class FakeTransport:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Request] = []
        self.closed = False

    def call(self, request: Request) -> Iterator[protocol.Message | Ending]:
        self.requests.append(request)
        yield from self.script[type(request)]

    def close(self) -> None:
        self.closed = True


class Bench(Generic[EngineT]):
    """An engine and every worker that it started; one after another takes the next script, the last again and again."""

    def __init__(
        self,
        make: Callable[[Callable[[], FakeTransport]], EngineT],
        source: Source,
        setup: EngineConfig,
        *scripts: Script,
    ) -> None:
        self.source, self.setup = source, setup
        self.workers: list[FakeTransport] = []

        def start() -> FakeTransport:
            self.workers.append(FakeTransport(scripts[min(len(self.workers), len(scripts) - 1)]))
            return self.workers[-1]

        self.engine = make(start)

    def open(self, setup: EngineConfig | None = None, **options: int) -> list[Event | Ending]:
        """Open the source with this setup, else its own; `options` are the engine's."""
        opened: Any = self.engine.open
        return list(opened(self.source, setup or self.setup, **options))

    @property
    def asked(self) -> list[list[type]]:
        return [[type(request) for request in worker.requests] for worker in self.workers]
