"""Engines over a worker that replays recorded messages, and a rig around them."""

import threading
from collections.abc import Callable, Iterator

from ggbench.engines import protocol
from ggbench.engines.contract import Engine, EngineConfig, Request
from ggbench.engines.endings import Cancelled, Completed, Ending
from ggbench.engines.events import Allocated, ContextProven, Loaded, Opened, PromptRead, Ready, Steps
from ggbench.engines.llama.config import LoadModel, MakeContext
from ggbench.engines.llama.engine import LlamaEngine
from ggbench.engines.memory import DeviceBuffers, Place
from ggbench.engines.transformers.config import LoadCheckpoint, MakeCache, TransformersConfig
from ggbench.engines.transformers.engine import TransformersEngine
from ggbench.engines.workloads import BatchedDecode, Decode, DecodeAtDepth, Prefill, ProveContext
from ggbench.machine.condition import environment
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
            yield Allocated((DeviceBuffers("CPU", Place.HOST, CHECKPOINT_BYTES),), tensor_bytes=CHECKPOINT_BYTES)
            yield Loaded(0.1, tensor_bytes=CHECKPOINT_BYTES)
        case MakeCache(checkpoint):
            buffers = DeviceBuffers("CPU", Place.HOST, CHECKPOINT_BYTES, CACHE_BYTES * (checkpoint.n_ctx or 0))
            yield Allocated((buffers,), tensor_bytes=CHECKPOINT_BYTES)
            yield Opened(0.1, checkpoint.n_ctx)
        case ProveContext():
            yield ContextProven(1.0, 512, 1_000_000, 1_000_000, "copied", True)
        case Prefill(n_prompt, repeat):
            for round_number in range(repeat):
                yield PromptRead(n_prompt, (n_prompt + round_number) * 1_000_000)
        case Decode(n_prompt, n_gen):
            yield PromptRead(n_prompt, n_prompt * 1_000_000)
            for start in range(n_prompt + 1, n_prompt + 1 + n_gen, 100):
                positions = range(start, min(start + 100, n_prompt + 1 + n_gen))
                step_ns = [10_000_000 + (n - 1) * 5_000 + n % 7 * 1000 for n in positions]
                yield Steps(start, step_ns, [50_000] * len(step_ns))
        case DecodeAtDepth(n_depth, n_gen, n_batch):
            first = n_depth + 2
            yield Steps(first, [10_000_000 + (n - 1) * 5_000 for n in range(first, first + n_gen)], [])
            if n_batch:
                yield PromptRead(n_batch, n_batch * 1_000_000)
        case BatchedDecode(n_prompt, n_gen, n_seqs):
            yield PromptRead(n_prompt, n_seqs * n_prompt * 1_000_000, n_seqs, 50_000)
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
