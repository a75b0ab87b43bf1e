"""A checkpoint in a folder: what its config says, and every way in which it can be wrong."""

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from ggbench.errors import BadFile, GgbenchError, Unsupported, UsageError
from ggbench.extras.transformers import model
from ggbench.extras.transformers.checkpoint import read_checkpoint
from ggbench.extras.transformers.config import TransformersConfig
from ggbench.extras.transformers.config_json import Config, unquantized_model
from ggbench.extras.transformers.storage import METHODS
from tests.fakes.checkpoints import GPTQ, QWEN2_TINY, write_checkpoint


def _change(folder: Path, **values: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    return folder


def _error(folder: Path) -> GgbenchError:
    """Return what a person sees of a folder that cannot be read or counted."""
    with pytest.raises(GgbenchError) as caught:
        checkpoint = read_checkpoint(folder)
        checkpoint.model_file(checkpoint.method)
    assert "\n" not in caught.value.message
    assert caught.value.hint
    return caught.value


def test_a_checkpoint_is_counted_from_its_config(tiny: Path) -> None:
    checkpoint = read_checkpoint(tiny)
    file = checkpoint.model_file(checkpoint.method)
    n_params = 2 * (256 * 256 * 2 + 256 * 128 * 2 + 256 + 128 * 2 + 3 * 256 * 512 + 2 * 256) + 2 * 256000 + 256
    assert (checkpoint.method.name, file.n_params, file.bpw) == ("bf16", n_params, 16)
    assert file.weight_bytes == 2 * n_params
    assert file.kv_bytes_per_token("bf16", "bf16") == 2 * 2 * 128 * 2
    assert file.file_bytes == (tiny / "model.safetensors").stat().st_size
    assert file.n_ctx_train == 2048


def test_a_quantized_checkpoint_is_loaded_as_it_is_stored(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "gptq", {**QWEN2_TINY, "quantization_config": GPTQ}, "gptq-int4")
    checkpoint = read_checkpoint(folder)
    assert checkpoint.method.name == "gptq-int4"
    assert [each.name for each in checkpoint.methods()] == ["gptq-int4"]
    with pytest.raises(UsageError, match="is stored as gptq-int4, but nf4 was requested"):
        checkpoint.model_file(METHODS["nf4"])


def test_group_and_bits_are_those_of_the_config(tmp_path: Path) -> None:
    sizes = {}
    for label, change in {"128": {}, "64": {"group_size": 64}, "row": {"group_size": -1}, "int8": {"bits": 8}}.items():
        values = {**QWEN2_TINY, "quantization_config": {**GPTQ, **change}}
        folder = tmp_path / label
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(values))
        checkpoint = read_checkpoint(folder)
        found = checkpoint.model_file(checkpoint.method)
        up = next(tensor for tensor in found.tensors if tensor.name == "blk.0.ffn_up.weight")
        sizes[label] = up.n_bytes or 0
    n = 256 * 512
    g_idx = 256 * 4
    assert sizes["128"] == n // 2 + n // 128 * 5 // 2 + g_idx
    assert sizes["64"] == n // 2 + n // 64 * 5 // 2 + g_idx
    assert sizes["row"] == n // 2 + 512 * 5 // 2 + g_idx
    assert sizes["int8"] == n + n // 128 * 3 + g_idx


@pytest.mark.parametrize(("stated", "first"), [({}, 28), ({"max_window_layers": 0}, 0), ({"max_window_layers": 3}, 3)])
def test_windows_of_qwen_begin_behind_the_layers_that_have_none(stated: dict[str, int], first: int) -> None:
    values = {**QWEN2_TINY, "num_hidden_layers": 32, "use_sliding_window": True, "sliding_window": 128, **stated}
    states = unquantized_model(Config("test", values)).states
    assert [state.window for state in states] == [None] * first + [128] * (32 - first)


def test_modules_that_were_left_out_are_counted_unquantized(tmp_path: Path) -> None:
    quantization = {"quant_method": "awq", "bits": 4, "group_size": 128, "modules_to_not_convert": ["mlp"]}
    folder = tmp_path / "awq"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**QWEN2_TINY, "quantization_config": quantization}))
    checkpoint = read_checkpoint(folder)
    types = {each.name: each.type_name for each in checkpoint.model_file(checkpoint.method).tensors}
    assert types["blk.0.ffn_up.weight"] == "f16"
    assert types["blk.0.attn_q.weight"] == "awq-int4"


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[]", "not valid JSON"),
        (b"\xff\xfe{}", "not valid JSON"),
        (b'{"a":' * 100_000, "not valid JSON"),
        (b'{"hidden_size": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b"{}", "architecture unknown is not supported"),
        (b'{"architectures": []}', "architecture unknown is not supported"),
        (b'{"architectures": ["Qwen2ForCausalLM"], "hidden_size": 1024}', "intermediate_size"),
    ],
)
def test_a_damaged_config_is_one_line(tmp_path: Path, content: bytes, what: str) -> None:
    (tmp_path / "config.json").write_bytes(content)
    assert what in _error(tmp_path).message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_hidden_layers", 10**9), ("num_hidden_layers", True), ("hidden_size", 10**40), ("hidden_size", -1),
        ("hidden_size", "1024"), ("vocab_size", 1.5), ("vocab_size", float("nan")), ("num_key_value_heads", 3),
        ("num_attention_heads", 0), ("tie_word_embeddings", "yes"), ("quantization_config", []),
        ("quantization_config", {"quant_method": "gptq", "group_size": 0}),
        ("quantization_config", {"quant_method": "gptq", "group_size": 10**30}),
        ("quantization_config", {"quant_method": "gptq", "bits": "4"}),
        ("quantization_config", {"quant_method": 4}), ("torch_dtype", "int4"),
    ],
)  # fmt: skip
def test_impossible_numbers_are_one_line(tiny: Path, key: str, value: object) -> None:
    (tiny / "model.safetensors").unlink()
    if key == "torch_dtype":
        assert read_checkpoint(_change(tiny, **{key: value})).method.name == "bf16"
        return
    error = _error(_change(tiny, **{key: value}))
    assert isinstance(error, BadFile)
    assert len(error.message) < 300


def test_a_config_far_too_large_is_not_read_whole(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(1 << 30)
    assert "is larger than 16.0 MiB" in _error(tmp_path).message


def test_remote_code_is_refused_and_named(tiny: Path) -> None:
    """A model that only its own code can load names the files, from wherever they would come."""
    auto_map = {"AutoConfig": "configuration_x.XConfig", "AutoModelForCausalLM": "org/code--modeling_x.XForCausalLM"}
    error = _error(_change(tiny, architectures=["XForCausalLM"], auto_map=auto_map))
    assert error.message == "tiny is loaded by its own code: configuration_x.py, modeling_x.py"
    assert "--trust-remote-code" in error.hint
    config = read_checkpoint(tiny).config
    config.check_code(trusted=True)


def test_weights_that_are_there_in_another_form_too_are_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mistral's repos have all tensors again in one file, which Transformers does not read."""
    folder = write_checkpoint(tmp_path / "twice", QWEN2_TINY, n_shards=2)
    n_bytes = read_checkpoint(folder).file_bytes
    (folder / "consolidated.safetensors").write_bytes(bytes(100))
    assert n_bytes == read_checkpoint(folder).file_bytes > 0
    beside = Mock(return_value=nullcontext())
    loaders = SimpleNamespace(AutoModelForCausalLM=SimpleNamespace(from_pretrained=lambda *_, **__: Mock()))
    monkeypatch.setitem(sys.modules, "transformers", loaders)
    monkeypatch.setitem(sys.modules, "torch", Mock())
    monkeypatch.setattr(model, "beside_the_limit", beside)
    model.load_model(folder, None, TransformersConfig("bf16", "bf16", device="cpu"), "cpu")
    beside.assert_called_once_with(n_bytes)


def test_a_file_that_is_missing_is_noticed(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "three", QWEN2_TINY, n_shards=3)
    (folder / "model-00002-of-00003.safetensors").unlink()
    assert _error(folder).message == "three has only 2 of its safetensors files"
    (folder / "model.safetensors").symlink_to("nowhere")
    assert _error(folder).message == "three has only 0 of its safetensors files"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"architectures": ["MambaForCausalLM"]}, "architecture MambaForCausalLM is not supported"),
        ({"quantization_config": {"quant_method": "compressed-tensors"}}, "is stored by compressed-tensors"),
        ({"quantization_config": {"quant_method": "awq", "version": "gemv"}}, "is stored by awq"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 3}}, "is stored by gptq"),
        ({"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}, "is stored by bitsandbytes"),
        ({"quantization_config": {}}, "is stored by an unnamed method"),
    ],
)
def test_what_is_not_counted_is_named(tiny: Path, change: dict[str, object], what: str) -> None:
    """Instead of being taken for bf16."""
    error = _error(_change(tiny, **change))
    assert isinstance(error, Unsupported)
    assert what in error.message


def test_what_converts_at_load_can_be_asked_of_an_unquantized_checkpoint(tiny: Path) -> None:
    checkpoint = read_checkpoint(tiny)
    assert [each.name for each in checkpoint.methods()] == ["bf16", "f16", "f32", "int8", "nf4", "nf4-dq"]
    checkpoint.require(METHODS["nf4"])
    with pytest.raises(UsageError, match="is stored as bf16, but awq-int4 needs a checkpoint quantized with it"):
        checkpoint.require(METHODS["awq-int4"])
