"""Checkpoints as Transformers writes them, with sparse files in place of weights."""

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from ggbench.engines.transformers.config_json import Config, read_layout
from ggbench.engines.transformers.storage import METHODS, Stored

QWEN2_TINY: Mapping[str, object] = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 256, "intermediate_size": 512,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000,
    "max_position_embeddings": 2048, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
"""A Qwen2 of two layers."""
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False}
"""`quantization_config` of AutoGPTQ's usual checkpoints."""


def tensors_of(values: Mapping[str, object], method: str = "bf16") -> list[Stored]:
    parameters = read_layout(Config("test", values)).parameters
    return [stored for parameter in parameters for stored in METHODS[method].stored(parameter, "bf16")]


def safetensors_bytes(tensors: Sequence[Stored]) -> bytes:
    end, header = 0, {}
    for tensor in tensors:
        entry = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [end, end + tensor.n_bytes]}
        header[tensor.name] = entry
        end += tensor.n_bytes
    data = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    return struct.pack("<Q", len(data)) + data


def write_safetensors(path: Path, tensors: Sequence[Stored]) -> Path:
    header = safetensors_bytes(tensors)
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + sum(tensor.n_bytes for tensor in tensors))
    return path


def write_checkpoint(folder: Path, values: Mapping[str, object], method: str = "bf16", n_shards: int = 1) -> Path:
    """Write config.json and safetensors, over several shards with an index."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(values))
    tensors = tensors_of(values, method)
    if n_shards == 1:
        write_safetensors(folder / "model.safetensors", tensors)
        return folder
    weight_map: dict[str, str] = {}
    step = -(-len(tensors) // n_shards)
    for number in range(n_shards):
        name = f"model-{number + 1:05}-of-{n_shards:05}.safetensors"
        held = tensors[number * step : (number + 1) * step]
        write_safetensors(folder / name, held)
        weight_map |= {tensor.name: name for tensor in held}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder
