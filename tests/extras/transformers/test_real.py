"""The real Transformers on tiny random checkpoints, on the CPU; skipped without ggbench[transformers]."""

import importlib.util
import json
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.engines.contract import BatchedDecode, Decode, Prefill, ProveContext, Source
from ggbench.engines.endings import Completed, Crashed, Ending, Failed, OutOfMemory
from ggbench.engines.events import Allocated, ContextProven, Event, PromptRead, Ready, Steps
from ggbench.engines.process import WorkerProcess
from ggbench.extras.transformers.checkpoint import read_checkpoint
from ggbench.extras.transformers.config import TransformersConfig
from ggbench.extras.transformers.engine import COMMAND, TransformersEngine
from ggbench.extras.transformers.storage import METHODS
from ggbench.units import MIB
from tests.fakes.checkpoints import QWEN2_TINY

pytestmark = [
    pytest.mark.transformers,
    pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="needs ggbench[transformers]"),
    pytest.mark.timeout(300),
]
CPU = TransformersConfig(device="cpu", threads=1)
CONVERTED = ("int8", "nf4", "nf4-dq")
"""What bitsandbytes makes of weights at load."""


def _folder(folder: Path, values: Mapping[str, object], **changes: object) -> Path:
    """Save a model with random weights, then change its config.json."""
    from transformers import AutoConfig, AutoModelForCausalLM

    shape = {key: value for key, value in values.items() if key not in ("architectures", "model_type", "torch_dtype")}
    config = AutoConfig.for_model("qwen2", **shape)
    AutoModelForCausalLM.from_config(config).bfloat16().save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return folder


@pytest.fixture
def engine() -> Iterator[TransformersEngine]:
    """One that is ended after the test, and asks for no package of a method, so that its worker has to refuse."""
    engine = TransformersEngine(lambda: WorkerProcess(None, 240, COMMAND, program="Transformers"), lambda method: None)
    yield engine
    engine.close()


def _need_packages(method: str) -> None:
    if method in CONVERTED:
        pytest.importorskip("bitsandbytes")


def _open(engine: TransformersEngine, folder: Path, setup: TransformersConfig) -> list[Event | Ending]:
    return list(engine.open(Source(folder), setup))


@pytest.mark.parametrize("method", ["bf16", "f32", *CONVERTED])
def test_prompts_and_decodes_are_timed_and_memory_is_what_the_config_says(
    tmp_path: Path, engine: TransformersEngine, method: str
) -> None:
    _need_packages(method)
    folder = _folder(tmp_path, QWEN2_TINY)
    dtype = METHODS[method].dtype or "bf16"
    setup = TransformersConfig(method, dtype, device="cpu", threads=1, n_ctx=64)
    opened = _open(engine, folder, setup)
    assert opened[-1] == Completed()
    allocated = [event for event in opened if isinstance(event, Allocated)][-1]
    expected = read_checkpoint(folder).model_file(METHODS[method])
    assert allocated.tensor_bytes == expected.weight_bytes
    assert allocated.total("kv_bytes") == 64 * expected.kv_bytes_per_token(dtype, dtype)
    prompts = [event for event in engine.run(Prefill(8, repeat=2, warmup=1)) if isinstance(event, PromptRead)]
    assert [(each.n_prompt, each.elapsed_ns > 0) for each in prompts] == [(8, True)] * 2
    events = list(engine.run(Decode(8, 20)))
    steps = [event for event in events if isinstance(event, Steps)]
    assert events[-1] == Completed()
    assert steps[0].first_position == 9
    assert sum(len(each.step_ns) for each in steps) == sum(len(each.sampler_ns) for each in steps) == 20
    assert all(step_ns > 0 for each in steps for step_ns in each.step_ns)


def test_sequences_are_decoded_together_and_a_context_is_proven(tmp_path: Path, engine: TransformersEngine) -> None:
    folder = _folder(tmp_path, QWEN2_TINY)
    opened = _open(engine, folder, TransformersConfig(device="cpu", threads=1, n_ctx=128, n_seq_max=4))
    assert isinstance(opened[0], Ready)
    events = list(engine.run(BatchedDecode(8, 10, 4)))
    assert events[-1] == Completed()
    assert sum(len(event.step_ns) for event in events if isinstance(event, Steps)) == 10
    reopened = _open(engine, folder, TransformersConfig(device="cpu", threads=1, n_ctx=700))
    assert not any(isinstance(event, Ready) for event in reopened)
    (proven,) = [event for event in engine.run(ProveContext()) if isinstance(event, ContextProven)]
    assert proven.full


def test_a_cache_beyond_the_limit_is_out_of_memory_and_the_worker_goes_on(
    tmp_path: Path, engine: TransformersEngine
) -> None:
    folder = _folder(tmp_path, QWEN2_TINY)
    limited = TransformersConfig(device="cpu", threads=1, memory_limit_bytes=256 * MIB, n_ctx=1 << 20)
    ending = _open(engine, folder, limited)[-1]
    assert isinstance(ending, OutOfMemory) and ending.alive
    assert ending.stage == "context"
    smaller = _open(engine, folder, replace(limited, n_ctx=512))
    assert smaller[-1] == Completed()
    assert not any(isinstance(event, Ready) for event in smaller)


def test_weights_beyond_the_limit_are_out_of_memory_in_the_load(tmp_path: Path, engine: TransformersEngine) -> None:
    folder = _folder(tmp_path, {**QWEN2_TINY, "vocab_size": 400_000})
    limited = TransformersConfig(device="cpu", threads=1, memory_limit_bytes=128 * MIB, n_ctx=64)
    ending = _open(engine, folder, limited)[-1]
    assert isinstance(ending, OutOfMemory) and ending.stage == "load"


def test_a_prompt_beyond_the_limit_is_out_of_memory(tmp_path: Path, engine: TransformersEngine) -> None:
    folder = _folder(tmp_path, {**QWEN2_TINY, "max_position_embeddings": 1 << 16})
    setup = TransformersConfig(device="cpu", threads=1, attention="eager", memory_limit_bytes=300 * MIB, n_ctx=16_384)
    assert _open(engine, folder, setup)[-1] == Completed()
    ending = list(engine.run(Prefill(16_000)))[-1]
    assert isinstance(ending, OutOfMemory) and ending.stage == "prefill"


def test_a_killed_worker_is_a_crash_with_what_was_timed_before(tmp_path: Path, engine: TransformersEngine) -> None:
    opened = _open(engine, _folder(tmp_path, QWEN2_TINY), TransformersConfig(device="cpu", threads=1, n_ctx=4096))
    (pid,) = [event.pid for event in opened if isinstance(event, Ready)]
    assert pid is not None
    seen: list[Event | Ending] = []
    for event in engine.run(Decode(8, 4000)):
        if isinstance(event, Steps) and not any(isinstance(each, Steps) for each in seen):
            os.kill(pid, signal.SIGKILL)
        seen.append(event)
    assert isinstance(seen[-1], Crashed)
    assert seen[-1].reason.startswith("Transformers was killed by SIGKILL")
    assert sum(len(event.step_ns) for event in seen if isinstance(event, Steps)) < 4000


@pytest.mark.parametrize(
    ("values", "setup", "words"),
    [
        ({"model_type": "no_such_model"}, CPU, "no_such_model"),
        ({}, TransformersConfig(device="cuda", threads=1), "torch sees no CUDA GPU"),
        ({}, TransformersConfig("gptq-int4", "f16", device="cpu", threads=1), "needs a CUDA GPU"),
        ({}, TransformersConfig(attention="flash_attention_2", device="cpu", threads=1), "lash"),
    ],
)
def test_what_cannot_be_loaded_is_one_line(
    tmp_path: Path, engine: TransformersEngine, values: dict[str, object], setup: TransformersConfig, words: str
) -> None:
    if setup.device == "cuda":
        import torch

        if torch.cuda.is_available():
            pytest.skip("torch sees a GPU")
    ending = _open(engine, _folder(tmp_path, QWEN2_TINY, **values), setup)[-1]
    assert isinstance(ending, Failed)
    assert words in ending.message and "\n" not in ending.message
