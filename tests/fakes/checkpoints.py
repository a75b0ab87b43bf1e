"""Checkpoints as Transformers writes them, with sparse files in place of weights."""

import json
from collections.abc import Mapping
from pathlib import Path

from ggbench.extras.transformers.checkpoint import Checkpoint
from ggbench.extras.transformers.config_json import Config
from ggbench.extras.transformers.storage import METHODS

QWEN2_TINY: Mapping[str, object] = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 256, "intermediate_size": 512,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000,
    "max_position_embeddings": 2048, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
"""A Qwen2 of two layers."""
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False}
"""`quantization_config` of AutoGPTQ's usual checkpoints."""


def write_checkpoint(folder: Path, values: Mapping[str, object], method: str = "bf16", n_shards: int = 1) -> Path:
    """Write config.json and safetensors, over several shards with an index."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(values))
    n_bytes = Checkpoint(Config("test", values), b"").model_file(METHODS[method]).file_bytes
    names = [f"model-{number + 1:05}-of-{n_shards:05}.safetensors" for number in range(n_shards)]
    for name in names if n_shards > 1 else ["model.safetensors"]:
        with (folder / name).open("wb") as file:
            file.write(name.encode())  # a repo names a file by its content
            file.truncate(n_bytes // n_shards)
    if n_shards == 1:
        return folder
    weight_map = {f"model.layers.{number}": name for number, name in enumerate(names)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder
