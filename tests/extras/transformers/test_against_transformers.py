"""Parameters by a config alone, compared with the model that Transformers makes of the same config without memory."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ggbench.extras.transformers.checkpoint import Checkpoint, read_checkpoint
from ggbench.extras.transformers.config import TransformersConfig
from ggbench.extras.transformers.config_json import ARCHITECTURES, Config, linear_module
from ggbench.extras.transformers.model import load_model, read_config
from ggbench.extras.transformers.storage import METHODS

pytestmark = pytest.mark.transformers
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors")

_SMALL: Mapping[str, object] = {
    "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 7, "num_attention_heads": 8,
    "num_key_value_heads": 4, "vocab_size": 1000, "max_position_embeddings": 2048, "pad_token_id": None,
}  # fmt: skip
_KINDS: Mapping[str, str] = {
    "LlamaForCausalLM": "llama", "MistralForCausalLM": "mistral", "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3", "Gemma3ForCausalLM": "gemma3_text", "Phi3ForCausalLM": "phi3",
}  # fmt: skip


def _made(values: Mapping[str, object], folder: Path) -> Any:  # noqa: ANN401 - a model of a package without types
    """Return Transformers' model of a config.json, on the meta device, in bf16."""
    (folder / "config.json").write_text(json.dumps(values))
    config = transformers.AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.tie_weights()
    return model


def _check(config: Config, folder: Path) -> None:
    """Compare every shape and byte, the linear layers, and the layers whose cache has a window."""
    file, model = Checkpoint(config, b"").model_file(METHODS["bf16"]), _made(config.values, folder)
    shapes = sorted(tuple(parameter.shape) for _, parameter in model.named_parameters())  # a tied one once
    assert sorted(tensor.shape[::-1] for tensor in file.tensors) == shapes
    assert file.weight_bytes == sum(each.numel() * each.element_size() for each in model.parameters())
    kinds = getattr(model.config, "layer_types", None)
    windows = [state.window is not None for state in file.states]
    if kinds is not None:
        assert windows == [kind == "sliding_attention" for kind in kinds]
    else:
        assert any(windows) == bool(getattr(model.config, "sliding_window", None))
    linear = {name for name, each in model.named_modules() if isinstance(each, torch.nn.Linear)} - {"lm_head"}
    converted = {linear_module(tensor.name) for tensor in file.tensors} - {None}
    assert {name.replace("gate_up_proj", "up_proj") for name in linear} == converted


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("is_tied", [False, True, None])
def test_every_architecture_has_the_same_parameters(architecture: str, is_tied: bool | None, tmp_path: Path) -> None:
    values = {**_SMALL, "architectures": [architecture], "model_type": _KINDS[architecture]}
    if is_tied is not None:
        values["tie_word_embeddings"] = is_tied
    _check(Config("test", values), tmp_path)


@pytest.mark.parametrize(
    ("architecture", "change"),
    [
        ("LlamaForCausalLM", {"attention_bias": True, "mlp_bias": True}),
        ("LlamaForCausalLM", {"head_dim": 48}),
        ("MistralForCausalLM", {"head_dim": 48, "sliding_window": None}),
        ("Qwen2ForCausalLM", {"use_sliding_window": True, "sliding_window": 128, "max_window_layers": 3}),
        ("Qwen3ForCausalLM", {"attention_bias": True, "head_dim": 64}),
        ("Gemma3ForCausalLM", {"head_dim": 64, "sliding_window": 128}),
        ("Gemma3ForCausalLM", {"layer_types": ["sliding_attention", "full_attention"] * 3 + ["sliding_attention"]}),
        ("Phi3ForCausalLM", {"sliding_window": 128}),
    ],
)
def test_options_of_a_config_change_both_alike(architecture: str, change: Mapping[str, object], tmp_path: Path) -> None:
    values = {**_SMALL, "architectures": [architecture], "model_type": _KINDS[architecture], **change}
    _check(Config("test", values), tmp_path)


def test_bitsandbytes_stores_what_is_counted() -> None:
    functional = pytest.importorskip("bitsandbytes").functional
    n_out, n_in = 512, 256
    matrix = torch.randn(n_out, n_in, dtype=torch.float32)
    row, scales, _ = functional.int8_vectorwise_quant(matrix.half())
    assert _converted_bytes("int8", n_out, n_in) == _n_bytes(row) + _n_bytes(scales)
    for name in ("nf4", "nf4-dq"):
        packed, state = functional.quantize_4bit(
            matrix, blocksize=64, quant_type="nf4", compress_statistics=name.endswith("dq")
        )
        held = {key: each for key, each in state.as_dict(packed=True).items() if "bitsandbytes__" not in key}
        assert _converted_bytes(name, n_out, n_in) == _n_bytes(packed) + sum(map(_n_bytes, held.values()))


@pytest.mark.parametrize("method", ["int8", "nf4", "nf4-dq"])
def test_a_checkpoint_saved_quantized_is_what_its_config_says(method: str, tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    config = transformers.AutoConfig.for_model("llama", **_SMALL)
    transformers.AutoModelForCausalLM.from_config(config).bfloat16().save_pretrained(tmp_path / "plain")
    setup = TransformersConfig(method, "bf16", device="cpu")
    model = load_model(tmp_path / "plain", read_config(tmp_path / "plain", setup), setup, "cpu")
    model.save_pretrained(tmp_path / "saved")
    saved = read_checkpoint(tmp_path / "saved")
    assert saved.method.name == method
    with safetensors.safe_open(tmp_path / "saved" / "model.safetensors", "pt") as file:
        names = [name for name in file.keys() if "bitsandbytes__" not in name and not name.endswith("weight_format")]  # noqa: SIM118 - it is no mapping
        assert sum(_n_bytes(file.get_tensor(name)) for name in names) == saved.model_file(saved.method).weight_bytes


def _converted_bytes(method: str, n_out: int, n_in: int) -> int:
    convert = METHODS[method].converted_bytes
    assert convert is not None
    return convert(n_out, n_in)


def _n_bytes(tensor: Any) -> int:  # noqa: ANN401
    return int(tensor.numel() * tensor.element_size())
