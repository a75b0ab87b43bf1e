"""No batch asks for more logits than the context has room for: one a sequence, as llama-server reserves."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ggbench.engines.contract import BatchAtDepth, BatchedDecode, Decode, Prefill, ProveContext, Score, Source, Workload
from ggbench.engines.endings import Completed
from ggbench.engines.events import Allocated
from ggbench.engines.llama.c_functions import lib, llama_library
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.engine import LlamaEngine
from ggbench.engines.llama.ggml_devices import GgmlDevices
from ggbench.engines.llama.model import LlamaModel
from ggbench.engines.llama.workloads import carry_out
from ggbench.units import MIB
from tests.engines.test_batched_decode import _KEPT

pytestmark = pytest.mark.llama

SETUP = LlamaConfig(n_ctx=1024, n_batch=64, n_ubatch=32, flash_attn="on", threads=1)
WORKLOADS = (
    Prefill(150), Decode(150, 5), BatchedDecode(50, 5, 4), BatchAtDepth(90, 3, 40), ProveContext(),
    Score(((1,) * 40,), ((2,) * 9,), 30, 39, 1),
)  # fmt: skip


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda each: type(each).__name__)
def test_a_batch_has_no_more_outputs_than_its_workload_states(
    workload: Workload, tiny_twin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    decode = lib.llama_decode

    def count(context: Any, batch: Any) -> int:  # noqa: ANN401 - llama_cpp's structures
        counted.append(sum(batch.logits[: batch.n_tokens]) if batch.logits else 1)
        return int(decode(context, batch))

    monkeypatch.setattr(lib, "llama_decode", count)
    setup = replace(SETUP, n_seq_max=workload.n_outputs)
    model = LlamaModel(lambda level, text: None, lambda: None)
    _KEPT.append(model)
    model.load(str(tiny_twin), setup, GgmlDevices(llama_library()), lambda share: None, dry=False)
    model.make_context(setup)
    model.check_outputs(workload)
    carry_out(model, workload, lambda event: None)
    model.free_context()
    assert max(counted) == workload.n_outputs


def test_room_for_fewer_outputs_is_a_smaller_compute_buffer(llama: LlamaEngine, tmp_path: Path) -> None:
    from ggbench.gguf_file.twin import cached_twin
    from ggbench.models.catalog import load_catalog

    hyper = replace(load_catalog().model("qwen1.5-0.5b").hyper, n_layer=1, n_vocab=32768)
    twin = cached_twin("wide", hyper, "q8_0", tmp_path)
    compute_bytes = {}
    for n_outputs in (None, 512):
        setup = replace(SETUP, n_batch=2048, n_ubatch=512, n_outputs_max=n_outputs)
        *events, ending = llama.open(Source(twin), setup)
        assert ending == Completed()
        compute_bytes[n_outputs] = [each for each in events if isinstance(each, Allocated)][-1].total("compute_bytes")
    assert compute_bytes[512] - (compute_bytes[None] or 0) > 32768 * 4 * 400
    assert compute_bytes[None] < 32 * MIB
