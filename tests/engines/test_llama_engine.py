"""llama.cpp's engine over recorded messages of a worker: what it yields, and when it loads or starts again."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.engines import protocol
from ggbench.engines.contract import Decode, EngineConfig, Source
from ggbench.engines.endings import Cancelled, Completed, Crashed, Ending, Failed, OutOfMemory, TimedOut
from ggbench.engines.events import Allocated, Loaded, MemoryKind, Opened, Steps
from ggbench.engines.llama.config import LlamaConfig, LoadModel, MakeContext
from ggbench.engines.llama.engine import LlamaEngine
from tests.fakes.engine import Bench, Script

SETUP = LlamaConfig(n_ctx=512, threads=1)
FILE = Source(Path("/models/x.gguf"))
LOAD_LOG = (
    protocol.Log(2, "load_tensors:        CUDA0 model buffer size =   100.00 MiB"),
    protocol.Log(2, "load_tensors:    CUDA_Host model buffer size =    10.00 MiB"),
)
CONTEXT_LOG = (
    protocol.Log(2, "llama_kv_cache:      CUDA0 KV buffer size =    24.00 MiB"),
    protocol.Log(2, "resolve_fused_ops: Flash Attention enabled"),
)
PLACES = {"CPU": MemoryKind.HOST, "CUDA0": MemoryKind.GPU, "CUDA_Host": MemoryKind.HOST}
LOADED, OPENED = Loaded(0.1), Opened(0.1, 512, 512, 512)
HEALTHY: Script = {
    LoadModel: (protocol.Devices(PLACES), *LOAD_LOG, LOADED, Completed()),
    MakeContext: (*CONTEXT_LOG, OPENED, Completed()),
    Decode: (Steps(26, [1], [1]), protocol.Log(3, "a warning"), Completed()),
}


def llama_bench(*scripts: Script) -> Bench[LlamaEngine]:
    """Return llama.cpp's engine over workers of these scripts."""
    return Bench(LlamaEngine, FILE, SETUP, *scripts)


def test_allocations_come_before_what_they_were_made_for_and_no_log_leaves() -> None:
    first, loaded, second, opened, ending = llama_bench(HEALTHY).open()
    assert isinstance(first, Allocated) and isinstance(second, Allocated)
    assert (loaded, opened, ending) == (LOADED, OPENED, Completed())
    assert [(each.device, each.place, each.kv_bytes >> 20) for each in first.buffers] == [
        ("CUDA0", MemoryKind.GPU, 0),
        ("CUDA_Host", MemoryKind.HOST, 0),
    ]
    assert [each.kv_bytes >> 20 for each in second.buffers] == [24, 0]
    assert (first.flash_attn, second.flash_attn) == (None, True)


@pytest.mark.parametrize(
    "field",
    [
        {"n_ctx": 1024}, {"n_batch": 64}, {"n_ubatch": 64}, {"type_k": "q8_0"}, {"type_v": "q8_0"},
        {"flash_attn": "off"}, {"threads": 4}, {"threads_batch": 4}, {"kv_offload": False}, {"swa_full": True},
        {"n_seq_max": 4}, {"n_outputs_max": 8},
    ],
    ids=lambda field: next(iter(field)),
)  # fmt: skip
def test_a_field_of_the_context_keeps_the_loaded_model(field: dict[str, object]) -> None:
    bench = llama_bench(HEALTHY)
    bench.open()
    assert bench.open(replace(SETUP, **field))[-1] == Completed()
    assert bench.asked == [[LoadModel, MakeContext, MakeContext]]


@pytest.mark.parametrize(
    ("setup", "reserve_bytes"),
    [(replace(SETUP, memory_limit_bytes=1 << 30), 0), (SETUP, 1 << 30)],
    ids=["memory limit", "reserve"],
)
def test_another_limit_takes_another_worker(setup: LlamaConfig, reserve_bytes: int) -> None:
    bench = llama_bench(HEALTHY)
    bench.open()
    bench.open(setup, reserve_bytes=reserve_bytes)
    assert bench.workers[0].closed
    bench.open(replace(setup, mmap=False), reserve_bytes=reserve_bytes)
    assert len(bench.workers) == 2
    bench.open()
    assert bench.asked == [[LoadModel, MakeContext], [LoadModel, MakeContext] * 2, [LoadModel, MakeContext]]


def test_a_refused_context_reports_what_was_allocated_and_keeps_the_model() -> None:
    refusal = OutOfMemory("context", "failed to allocate")
    bench = llama_bench(HEALTHY)
    bench.open()
    bench.workers[0].script = {**HEALTHY, MakeContext: (protocol.Log(4, refusal.message), refusal)}
    allocated, last = bench.open(replace(SETUP, n_ctx=1 << 20))
    assert isinstance(allocated, Allocated)
    assert (allocated.total("kv_bytes"), allocated.total("weight_bytes") >> 20) == (0, 110)
    assert last == refusal
    assert bench.asked == [[LoadModel, MakeContext, MakeContext]]


@pytest.mark.parametrize(
    "ending", [Crashed("it died"), TimedOut(1.0), Cancelled(), OutOfMemory("decode", "killed", alive=False)]
)
def test_a_worker_that_is_gone_is_replaced_by_the_next_open(ending: Ending) -> None:
    bench = llama_bench({**HEALTHY, Decode: (ending,)}, HEALTHY)
    bench.open()
    assert list(bench.engine.run(Decode(25, 1))) == [ending]
    assert bench.workers[0].closed
    assert list(bench.engine.run(Decode(25, 1))) == [Failed("decode", "no model is open")]
    assert bench.open()[-1] == Completed()
    assert bench.asked == [[LoadModel, MakeContext, Decode], [LoadModel, MakeContext]]


class OtherSetup(EngineConfig):
    pass


@pytest.mark.parametrize(("source", "setup"), [(Source(), SETUP), (FILE, OtherSetup())])
def test_what_is_not_a_file_for_llama_cpp_is_refused(source: Source, setup: EngineConfig) -> None:
    bench = llama_bench(HEALTHY)
    (ending,) = bench.engine.open(source, setup)
    assert isinstance(ending, Failed)
    assert bench.asked == [[]]
