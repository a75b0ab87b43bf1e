"""config.json of a catalog model, for `synth-tf:`: its true shape, which Transformers fills with random weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from ggbench.engines.transformers.config_json import CONFIG, Config
from ggbench.errors import Unsupported
from ggbench.files import make_folders, replace_file
from ggbench.gguf_file.blueprint import Hyperparameters

TWIN_KEY = "ggbench_twin"
"""Key that marks a config written here; Transformers keeps keys that it does not know."""
_CLASSES: Mapping[str, tuple[str, str]] = {
    "llama": ("LlamaForCausalLM", "llama"),
    "qwen2": ("Qwen2ForCausalLM", "qwen2"),
    "qwen3": ("Qwen3ForCausalLM", "qwen3"),
    "gemma3": ("Gemma3ForCausalLM", "gemma3_text"),
    "phi3": ("Phi3ForCausalLM", "phi3"),
}
"""Class and `model_type` of Transformers for llama.cpp's architectures."""


def twin_config(hyper: Hyperparameters, name: str, *, tied: bool | None = None) -> Config:
    """Return the config of a model of this shape; `tied` is `tie_word_embeddings` where the GGUF differs.

    Raises Unsupported for an architecture that is not counted from a config, mixtures of experts among them.
    """
    known = _CLASSES.get(hyper.architecture)
    if known is None or hyper.n_expert:
        what = "a mixture of experts" if hyper.n_expert else f"of architecture {hyper.architecture}"
        raise Unsupported(f"{name} is {what}, of which no checkpoint is made", f"take synth:{name}, its GGUF twin")
    architecture, model_type = known
    values: dict[str, object] = {
        "architectures": [architecture],
        "model_type": model_type,
        "hidden_size": hyper.n_embd,
        "intermediate_size": hyper.n_ff,
        "num_hidden_layers": hyper.n_layer,
        "num_attention_heads": hyper.n_head,
        "num_key_value_heads": hyper.n_head_kv,
        "head_dim": hyper.n_embd_head,
        "vocab_size": hyper.n_vocab,
        "max_position_embeddings": hyper.n_ctx_train,
        "rope_theta": hyper.rope_freq_base,
        "rms_norm_eps": hyper.norm_rms_eps,
        "hidden_act": "gelu_pytorch_tanh" if hyper.architecture == "gemma3" else "silu",
        "tie_word_embeddings": hyper.tied_embeddings if tied is None else tied,
        "torch_dtype": "bfloat16",
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
        "use_cache": True,
        TWIN_KEY: name,
    }
    if hyper.architecture == "gemma3":
        values |= {"hidden_activation": values.pop("hidden_act"), "query_pre_attn_scalar": hyper.n_embd_head}
    if hyper.architecture in ("qwen2", "qwen3"):
        values["use_sliding_window"] = False
    else:
        values["sliding_window"] = hyper.sliding_window or None
    if hyper.n_rot:
        values["partial_rotary_factor"] = hyper.n_rot / hyper.n_embd_head
    return Config(name, values)


def write_config(config: Config, folder: Path) -> Path:
    """Write config.json into a folder, which is made where it is missing, and return the folder."""
    make_folders(folder)
    replace_file(folder / CONFIG, json.dumps(config.values, indent=2).encode() + b"\n")
    return folder
