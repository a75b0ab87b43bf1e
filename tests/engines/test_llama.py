"""The real llama.cpp in a real worker, on a tiny twin."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.engines import protocol
from ggbench.engines.contract import BatchedDecode, Decode, DecodeAtDepth, EstimateMemory, Prefill, ProveContext, Source
from ggbench.engines.endings import Completed, Ending, Failed, OutOfMemory
from ggbench.engines.events import Allocated, Event, Loaded, Opened, PromptRead, ReadingPrompts, Ready, Steps
from ggbench.engines.llama.config import LlamaConfig, LoadModel, MakeContext
from ggbench.engines.llama.engine import LlamaEngine
from ggbench.engines.process import WorkerProcess
from ggbench.gguf_file.header import read_model_file

pytestmark = pytest.mark.llama

SETUP = LlamaConfig(n_ctx=512, n_batch=256, n_ubatch=128, flash_attn="on", threads=1)
"""One thread, because two wait for each other on a busy machine."""


@pytest.fixture
def workers() -> list[WorkerProcess]:
    return []


@pytest.fixture
def engine(workers: list[WorkerProcess]) -> Iterator[LlamaEngine]:
    def start() -> WorkerProcess:
        workers.append(WorkerProcess(timeout_s=60))
        return workers[-1]

    engine = LlamaEngine(start)
    yield engine
    engine.close()


def opened(
    engine: LlamaEngine, path: Path, setup: LlamaConfig = SETUP, *, dry: bool = False
) -> tuple[list[Event | Ending], Ending]:
    *events, last = engine.run(EstimateMemory(Source(path), setup)) if dry else engine.open(Source(path), setup)
    assert isinstance(last, Ending)
    assert not any(isinstance(item, protocol.Log | protocol.Devices | protocol.Done) for item in events)
    return events, last


def the(items: Sequence[object], kind: type[Event]) -> Event:
    return next(item for item in reversed(items) if isinstance(item, kind))


def steps_of(items: Sequence[object]) -> list[Steps]:
    return [item for item in items if isinstance(item, Steps)]


def allocated(items: Sequence[object]) -> Allocated:
    last = the(items, Allocated)
    assert isinstance(last, Allocated)
    return last


def test_open_prefill_and_decode(engine: LlamaEngine, tiny_twin: Path) -> None:
    events, ending = opened(engine, tiny_twin)
    assert ending == Completed()
    assert isinstance(events[0], Ready)
    model = read_model_file(tiny_twin)
    found = allocated(events)
    # llama.cpp prints MiB to two decimals, and keeps some tensors twice, repacked.
    assert model.weight_bytes is not None
    assert found.total("weight_bytes") >= model.weight_bytes - 6000
    assert found.total("kv_bytes") == found.cache_bytes == 512 * model.kv_bytes_per_token()
    assert found.flash_attn is True
    assert all(each.is_host for each in found.buffers)
    assert events.index(the(events, Loaded)) < events.index(found) < events.index(the(events, Opened))

    prompts = list(engine.run(Prefill(25, repeat=2, warmup=1)))
    assert prompts[-1] == Completed()
    shares = [each.share for each in prompts if isinstance(each, ReadingPrompts)]
    assert shares == pytest.approx([0, 1 / 3, 2 / 3])
    assert sum(isinstance(each, PromptRead) for each in prompts) == 2
    first, *decoded = engine.run(Decode(25, 300))
    assert isinstance(first, PromptRead)
    batches = steps_of(decoded)
    assert batches[0].first_position == 26
    assert [each.first_position for each in batches[1:]] == [
        each.first_position + len(each.step_ns) for each in batches[:-1]
    ]
    assert sum(len(batch.step_ns) for batch in batches) == sum(len(batch.sampler_ns) for batch in batches) == 300
    assert all(step_ns > 0 for batch in batches for step_ns in batch.step_ns)
    assert decoded[-1] == Completed()


def test_steps_at_a_depth_come_behind_its_cells(engine: LlamaEngine, tiny_twin: Path) -> None:
    assert opened(engine, tiny_twin)[1] == Completed()
    for n_depth in (0, 1, 300):
        *events, ending = engine.run(DecodeAtDepth(n_depth, 100))
        assert ending == Completed()
        steps = [(each.first_position, len(each.step_ns)) for each in steps_of(events)]
        assert steps == [(n_depth + 2, 64), (n_depth + 66, 36)]


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a model at all" * 100])
def test_a_file_that_is_no_model(
    engine: LlamaEngine, workers: list[WorkerProcess], tmp_path: Path, content: bytes
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(content)
    for _ in range(2):
        _, ending = opened(engine, broken)
        assert isinstance(ending, Failed)
        assert ending.stage == "load"
        assert ending.message.startswith(("gguf_init", "llama_model_load"))
    assert len(workers) == 1


def test_a_memory_limit_makes_a_context_fail_and_a_smaller_one_fit(engine: LlamaEngine, tiny_twin: Path) -> None:
    limited = replace(SETUP, memory_limit_bytes=600 << 20)
    assert opened(engine, tiny_twin, limited)[1] == Completed()
    events, too_large = opened(engine, tiny_twin, replace(limited, n_ctx=1 << 20))
    assert isinstance(too_large, OutOfMemory)
    assert too_large.stage == "context"
    assert isinstance(events[-1], Allocated)
    assert allocated(events).total("weight_bytes") > 0
    assert opened(engine, tiny_twin, limited)[1] == Completed()


def test_a_dry_open_reports_sizes_and_allocates_nothing(engine: LlamaEngine, tiny_twin: Path, tmp_path: Path) -> None:
    model = read_model_file(tiny_twin)
    sparse = tmp_path / "sparse.gguf"
    with tiny_twin.open("rb") as source, sparse.open("wb") as hole:
        hole.write(source.read(64 << 10))
        hole.truncate(model.file_bytes)
    events, ending = opened(engine, sparse, replace(SETUP, n_ctx=1 << 22), dry=True)
    assert ending == Completed()
    found = allocated(events)
    assert found.cache_bytes == (1 << 22) * model.kv_bytes_per_token()
    assert found.total("kv_bytes") == found.total("weight_bytes") == 0
    assert found.total("compute_bytes") > 0


def test_more_tokens_than_the_context_holds_end_where_it_ends(engine: LlamaEngine, tiny_twin: Path) -> None:
    """Every step timed before is reported, and the worker lives."""
    opened(engine, tiny_twin, replace(SETUP, n_ctx=256))
    items = list(engine.run(Decode(25, 400)))
    assert sum(len(item.step_ns) for item in steps_of(items)) == 256 - 25
    assert isinstance(items[-1], Failed) and items[-1].stage == "decode"
    assert list(engine.run(Decode(25, 5)))[-1] == Completed()


def test_requests_out_of_order_are_refusals(tiny_twin: Path) -> None:
    """A decode without a model, and one without a context."""
    with closing(WorkerProcess(timeout_s=60)) as worker:
        for request in (Decode(25, 5), MakeContext(SETUP), ProveContext()):
            assert isinstance(list(worker.call(request))[-1], Failed)
        assert list(worker.call(LoadModel(str(tiny_twin), SETUP)))[-1] == Completed()
        for workload in (Decode(25, 5), Prefill(25), BatchedDecode(25, 5, 2), ProveContext()):
            ending = list(worker.call(workload))[-1]
            assert isinstance(ending, Failed) and "no context" in ending.reason
