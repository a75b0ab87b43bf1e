"""llama.cpp's allocator run dry, by a worker that makes its answers up."""

import threading
from collections.abc import Iterator

from ggbench.engines import protocol
from ggbench.engines.contract import Request
from ggbench.engines.endings import Completed, Ending
from ggbench.engines.events import Opened
from ggbench.engines.llama.config import LoadModel, MakeContext
from ggbench.engines.llama.engine import LlamaEngine
from ggbench.engines.memory import Place
from tests.fakes.engine import Answer, FakeWorker

PLACES = protocol.Devices({"CPU": Place.HOST, "CUDA0": Place.GPU, "CUDA_Host": Place.HOST, "CPU_REPACK": Place.HOST})


def fake(answer: Answer) -> LlamaEngine:
    return LlamaEngine(lambda: FakeWorker(threading.Event(), answer))


def dry_answer(kv_mib_per_k: float, device: str = "CPU", weights: str = "CPU") -> Answer:
    """A dry run's log, with a cache of `kv_mib_per_k` MiB for 1024 tokens, and 100 MiB of compute on this device."""

    def answer(request: Request) -> Iterator[protocol.Message | Ending]:
        if isinstance(request, LoadModel):
            assert request.dry
            yield PLACES
            yield protocol.Log(2, f"load_tensors: {weights} model buffer size = 0.00 MiB")
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
