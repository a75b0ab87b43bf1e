"""Twins of hybrid, latent and windowed models: llama.cpp lists their tensors, loads a file of them and decodes."""

import json
import math
import re
from pathlib import Path

import pytest

from ggbench.gguf_file.ggml_types import tensor_bytes
from ggbench.gguf_file.header import encode_model, read_model_file
from ggbench.gguf_file.model_file import ModelFile, TensorInfo, layer_kinds
from ggbench.gguf_file.twin import twin_of, write_cached
from tests.gguf_file.test_architecture import BASE, KV_CACHE_OF_METADATA, Keys, run_llama_cpp
from tests.gguf_file.test_layer_states import RECURRENT, WINDOWED

LISTED = KV_CACHE_OF_METADATA.replace("lambda tensor, _: None", "show").replace(
    "fill = ",
    """
base.ggml_get_name.restype, base.ggml_get_name.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
def show(tensor, _):
    shape = (ctypes.c_int64 * 4).from_address(tensor + 16)  # after the type and the buffer of a ggml_tensor
    print("TENSOR", base.ggml_get_name(tensor).decode(), *shape, flush=True)
fill = """,
)
DECODED = """
params = llama_cpp.llama_model_default_params()
params.n_gpu_layers, params.use_extra_bufts = 0, False
model = llama_cpp.llama_model_load_from_file(sys.argv[1].encode(), params)
context = make_context(model)
tokens = (llama_cpp.llama_token * 3)(1, 2, 3)
assert llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(tokens, 3)) == 0
print("LOGITS", *llama_cpp.llama_get_logits_ith(context, -1)[:8], flush=True)
"""

CASES = (
    "mamba2", "jamba", "granitehybrid", "granitehybrid with experts", "falcon-h1", "nemotron_h", "qwen3next", "qwen35",
    "qwen35moe", "lfm2", "lfm2 with windows", "lfm2moe", "kimi-linear", "minimax-01", "laguna", "cohere2moe",
)  # fmt: skip


def listed_by_llama_cpp(architecture: str, keys: Keys) -> ModelFile:
    """A header of this metadata with the tensors that llama.cpp makes for it, in f32."""
    metadata = {"general.architecture": architecture, "tokenizer.ggml.model": "none"}
    metadata |= {f"{architecture}.{key}": value for key, value in keys.items()}  # type: ignore[misc]
    log = run_llama_cpp(LISTED, json.dumps(metadata))
    tensors: dict[str, TensorInfo] = {}
    for name, *extents in re.findall(r"^TENSOR (\S+) (\d+) (\d+) (\d+) (\d+)$", log, re.MULTILINE):
        shape = [int(extent) for extent in extents]
        while len(shape) > 1 and shape[-1] == 1:
            shape.pop()
        tensors[name] = TensorInfo(name, tuple(shape), "f32", tensor_bytes("f32", tuple(shape)))
    assert tensors, log[-2000:]
    return encode_model(metadata, tuple(tensors.values()), architecture)


def decoded(path: Path) -> list[float]:
    log = run_llama_cpp(DECODED, str(path))
    found = re.search(r"^LOGITS (.*)$", log, re.MULTILINE)
    assert found is not None, log[-2000:]
    return [float(value) for value in found[1].split()]


@pytest.mark.llama
@pytest.mark.parametrize("case", CASES)
def test_llama_cpp_decodes_one_layer_of_each_kind(case: str, tmp_path: Path) -> None:
    model = listed_by_llama_cpp(case.split()[0], BASE | (RECURRENT | WINDOWED)[case])
    kinds = layer_kinds(model)
    selected = [kind.layers[0] for kind in kinds]
    path = write_cached(twin_of(model, "x", selected), case, tmp_path)
    found = layer_kinds(read_model_file(path))
    assert [kind.layers for kind in found] == [(number,) for number in range(len(kinds))]
    assert [(kind.state, kind.tensors) for kind in found] == [(kind.state, kind.tensors) for kind in kinds]
    logits = decoded(path)
    assert all(math.isfinite(value) for value in logits)
    assert max(logits) - min(logits) > 0.01
