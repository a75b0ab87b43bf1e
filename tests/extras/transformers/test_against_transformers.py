"""Parameters by a config alone, compared with the model that Transformers makes of the same config without memory."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ggbench.extras.transformers.checkpoint import read_checkpoint
from ggbench.extras.transformers.config import TransformersConfig
from ggbench.extras.transformers.config_json import ARCHITECTURES, Config, read_layout, twin_config, write_config
from ggbench.extras.transformers.model import load_model, read_config
from ggbench.extras.transformers.storage import METHODS, Stored
from ggbench.models.catalog import load_catalog

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
    "Qwen3ForCausalLM": "qwen3", "GemmaForCausalLM": "gemma", "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3_text", "Phi3ForCausalLM": "phi3",
}  # fmt: skip


def _made(values: Mapping[str, object], folder: Path) -> Any:  # noqa: ANN401 - a model of a package without types
    """Return Transformers' model of a config.json, on the meta device, in bf16."""
    (folder / "config.json").write_text(json.dumps(values))
    config = transformers.AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.tie_weights()
    return model


def _shapes(model: Any) -> dict[str, tuple[int, ...]]:  # noqa: ANN401
    """Names and shapes of the parameters, a tied one once."""
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def _check(config: Config, folder: Path) -> Any:  # noqa: ANN401
    """Compare every name, shape and byte, and the layers whose cache has a window; return Transformers' model."""
    layout, model = read_layout(config), _made(config.values, folder)
    assert {each.name: each.shape for each in layout.parameters} == _shapes(model)
    stored = [each for parameter in layout.parameters for each in METHODS["bf16"].stored(parameter, "bf16")]
    assert sum(each.n_bytes for each in stored) == sum(
        each.numel() * each.element_size() for each in model.parameters()
    )
    kinds = getattr(model.config, "layer_types", None)
    windows = [state.window is not None for state in layout.shape.states]
    if kinds is not None:
        assert windows == [kind == "sliding_attention" for kind in kinds]
    else:
        assert any(windows) == bool(getattr(model.config, "sliding_window", None))
    linear = {f"{name}.weight" for name, each in model.named_modules() if isinstance(each, torch.nn.Linear)}
    converted = {each.name for each in layout.parameters if each.is_converted}
    assert converted == linear - {"lm_head.weight"}
    return model


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
        ("Gemma2ForCausalLM", {"head_dim": 64, "sliding_window": 128}),
        ("Gemma3ForCausalLM", {"head_dim": 64, "sliding_window": 128}),
        ("Gemma3ForCausalLM", {"layer_types": ["sliding_attention", "full_attention"] * 3 + ["sliding_attention"]}),
        ("Phi3ForCausalLM", {"sliding_window": 128}),
    ],
)
def test_options_of_a_config_change_both_alike(architecture: str, change: Mapping[str, object], tmp_path: Path) -> None:
    values = {**_SMALL, "architectures": [architecture], "model_type": _KINDS[architecture], **change}
    _check(Config("test", values), tmp_path)


_MODELS = [
    model for model in load_catalog() if model.hyper.architecture in ("llama", "qwen2", "qwen3", "gemma3", "phi3")
]


@pytest.mark.parametrize("model_id", [model.id for model in _MODELS if not model.hyper.n_expert])
def test_a_catalog_model_is_loaded_from_the_config_made_of_it(model_id: str, tmp_path: Path) -> None:
    model = load_catalog().model(model_id)
    made = _check(twin_config(model.hyper, model.id, tied=model.tied_in_config), tmp_path)
    assert made.config.max_position_embeddings == model.hyper.n_ctx_train


def test_bitsandbytes_stores_what_is_counted(tmp_path: Path) -> None:
    functional = pytest.importorskip("bitsandbytes").functional
    values = {**_SMALL, "architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    parameter = next(each for each in read_layout(Config("test", values)).parameters if each.is_converted)
    matrix = torch.randn(*parameter.shape, dtype=torch.float32)
    row, scales, _ = functional.int8_vectorwise_quant(matrix.half())
    assert _sizes(METHODS["int8"].stored(parameter, "bf16")) == [_n_bytes(row), _n_bytes(scales)]
    for name in ("nf4", "nf4-dq"):
        packed, state = functional.quantize_4bit(
            matrix, blocksize=64, quant_type="nf4", compress_statistics=name.endswith("dq")
        )
        held = {key: each for key, each in state.as_dict(packed=True).items() if "bitsandbytes__" not in key}
        stored = {
            each.name.removeprefix(f"{parameter.name}."): each for each in METHODS[name].stored(parameter, "bf16")
        }
        assert _n_bytes(packed) == stored.pop(parameter.name).n_bytes
        assert {key: _n_bytes(each) for key, each in held.items()} == {
            key: each.n_bytes for key, each in stored.items()
        }


@pytest.mark.parametrize("method", ["int8", "nf4", "nf4-dq"])
def test_a_checkpoint_saved_quantized_is_what_its_config_says(method: str, tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    values = {**_SMALL, "architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    write_config(Config("test", values), tmp_path)
    setup = TransformersConfig(method, "bf16", device="cpu")
    model = load_model(tmp_path, read_config(tmp_path, setup), setup, "cpu")
    model.save_pretrained(tmp_path / "saved")
    saved = read_checkpoint(tmp_path / "saved")
    assert saved.method.name == method
    parts = [part for each in saved.layout.parameters for part in saved.method.stored(each, "bf16")]
    with safetensors.safe_open(tmp_path / "saved" / "model.safetensors", "pt") as file:
        held = {name: _n_bytes(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    assert {each.name: each.n_bytes for each in parts if not each.name.endswith("quant_map")}.items() <= held.items()


def _sizes(stored: tuple[Stored, ...]) -> list[int]:
    return [each.n_bytes for each in stored]


def _n_bytes(tensor: Any) -> int:  # noqa: ANN401
    return int(tensor.numel() * tensor.element_size())
