"""The real llama.cpp in a real worker, on a tiny twin."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ggbench.engine import protocol
from ggbench.engine.endings import Completed, Ending, Failed, OutOfMemory
from ggbench.engine.logs import parse_allocations
from ggbench.engine.process import WorkerProcess
from ggbench.gguf_file.header import read_model_file
from ggbench.units import MIB

pytestmark = pytest.mark.llama


@pytest.fixture
def worker() -> Iterator[WorkerProcess]:
    with WorkerProcess(timeout_s=60) as process:
        yield process


def context(n_ctx: int = 512, type_k: str = "f16") -> protocol.MakeContext:
    """One thread, because two wait for each other on a busy machine."""
    return protocol.MakeContext(
        n_ctx=n_ctx, n_batch=256, n_ubatch=128, type_k=type_k, type_v="f16", flash_attn="on", threads=1
    )


def test_load_prefill_and_decode(worker: WorkerProcess, tiny_twin: Path) -> None:
    """Each step is timed and told once, positions go on from the prompt, and sizes agree with the header."""
    loaded = list(worker.call(protocol.LoadModel(str(tiny_twin))))
    made = list(worker.call(context()))
    prefilled = list(worker.call(protocol.Prefill(25, repeat=2, warmup=1)))
    decoded = list(worker.call(protocol.Decode(25, 300)))
    model = read_model_file(tiny_twin)

    model_loaded = next(item for item in loaded if isinstance(item, protocol.ModelLoaded))
    assert (model_loaded.n_params, model_loaded.size_bytes) == (model.n_params, model.weight_bytes)
    assert (model_loaded.n_ctx_train, model_loaded.n_vocab) == (model.n_ctx_train, model.n_vocab)
    allocations = parse_allocations(item.text for item in [*loaded, *made] if isinstance(item, protocol.Log))
    assert allocations.total("kv_bytes") == 512 * model.kv_bytes_per_token()
    assert allocations.flash_attn is True
    assert sum(isinstance(item, protocol.Prefilled) for item in prefilled) == 2
    batches = [item for item in decoded if isinstance(item, protocol.Decoded)]
    assert batches[0].first_position == 26
    assert sum(len(batch.step_ns) for batch in batches) == sum(len(batch.sample_ns) for batch in batches) == 300
    assert all(step_ns > 0 for batch in batches for step_ns in batch.step_ns)
    assert decoded[-1] == Completed()


def test_contexts_are_made_and_freed_on_one_model(worker: WorkerProcess, tiny_twin: Path) -> None:
    """A second context replaces the first, also with other types, and a prompt longer than a batch is read."""
    assert list(worker.call(protocol.LoadModel(str(tiny_twin))))[-1] == Completed()
    assert list(worker.call(context(1024)))[-1] == Completed()
    made = list(worker.call(context(512, type_k="q8_0")))
    assert next(item.n_ctx for item in made if isinstance(item, protocol.ContextMade)) == 512
    assert list(worker.call(protocol.Prefill(500)))[-1] == Completed()


def test_more_tokens_than_the_context_holds(worker: WorkerProcess, tiny_twin: Path) -> None:
    """llama.cpp refuses, every step timed before is told, and the worker lives."""
    list(worker.call(protocol.LoadModel(str(tiny_twin))))
    list(worker.call(context(256)))
    items = list(worker.call(protocol.Decode(25, 400)))
    assert sum(len(item.step_ns) for item in items if isinstance(item, protocol.Decoded)) == 256 - 25
    assert isinstance(items[-1], Failed)
    assert items[-1].stage == "decode"
    assert list(worker.call(protocol.Decode(25, 5)))[-1] == Completed()


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a model at all" * 100])
def test_a_file_that_is_no_model(worker: WorkerProcess, tmp_path: Path, content: bytes) -> None:
    """llama.cpp's own reason is told, and the worker lives."""
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(content)
    for _ in range(2):
        *_, ending = worker.call(protocol.LoadModel(str(broken)))
        assert isinstance(ending, Failed)
        assert ending.stage == "load"
        assert ending.message.startswith(("gguf_init", "llama_model_load"))


def test_a_memory_limit_makes_a_context_fail_and_a_smaller_one_fit(worker: WorkerProcess, tiny_twin: Path) -> None:
    """An allocation over the limit is out of memory; the same worker then makes one that fits."""
    assert _ending(worker, protocol.LoadModel(str(tiny_twin), memory_limit_bytes=600 << 20)) == Completed()
    too_large = _ending(worker, context(1 << 20))
    assert isinstance(too_large, OutOfMemory)
    assert too_large.stage == "context"
    assert _ending(worker, context(512)) == Completed()


def test_requests_out_of_order(worker: WorkerProcess) -> None:
    """A decode without a model, and a context without one, are refusals and not crashes."""
    assert isinstance(_ending(worker, protocol.Decode(25, 5)), Failed)
    assert isinstance(_ending(worker, context()), Failed)


def _ending(worker: WorkerProcess, request: protocol.Request) -> Ending:
    *_, last = worker.call(request)
    assert isinstance(last, Ending)
    return last


def test_a_dry_load_tells_sizes_and_allocates_nothing(worker: WorkerProcess, tiny_twin: Path, tmp_path: Path) -> None:
    """The header alone is enough, in a file whose tensors are a hole; a context of any size is told and not made."""
    model = read_model_file(tiny_twin)
    sparse = tmp_path / "sparse.gguf"
    with tiny_twin.open("rb") as source, sparse.open("wb") as hole:
        hole.write(source.read(64 << 10))
        hole.truncate(model.file_bytes)
    assert _ending(worker, protocol.LoadModel(str(sparse), dry=True)) == Completed()
    made = list(worker.call(context(1 << 22)))
    assert made[-1] == Completed()
    total = next(item.text for item in made if isinstance(item, protocol.Log) and "llama_kv_cache: size" in item.text)
    assert f"{(1 << 22) * model.kv_bytes_per_token() / MIB:.2f} MiB" in total


def test_a_paused_decode_goes_on_and_no_sample_tells_of_the_pause(tiny_twin: Path) -> None:
    """The worker waits between two steps, outside of what is timed, and every step is told once."""
    hold, pause_ns = threading.Event(), 500_000_000
    with WorkerProcess(timeout_s=60, hold=hold) as worker:
        assert list(worker.call(protocol.LoadModel(str(tiny_twin))))[-1] == Completed()
        assert list(worker.call(context(2048)))[-1] == Completed()
        batches, held_at, waits_ns = [], 0, []
        for item in worker.call(protocol.Decode(25, 1500)):
            if isinstance(item, protocol.Decoded):
                now = time.perf_counter_ns()
                if not held_at:
                    hold.set()
                    threading.Timer(pause_ns / 1e9, hold.clear).start()
                else:
                    waits_ns.append(now - held_at)
                held_at = now
                batches.append(item)
    assert item == Completed()
    assert max(waits_ns) > pause_ns // 2  # it did wait
    assert max(step_ns for batch in batches for step_ns in batch.step_ns) < pause_ns // 2
    assert sum(len(batch.step_ns) for batch in batches) == 1500
    assert [batch.first_position for batch in batches[1:]] == [
        batch.first_position + len(batch.step_ns) for batch in batches[:-1]
    ]
