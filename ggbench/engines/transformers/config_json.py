"""config.json of a checkpoint as typed values: untrusted JSON, of bounded size and depth, whose errors name the key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ggbench.errors import BadFile, Unsupported
from ggbench.files import make_folders, replace_file
from ggbench.gguf_file.hyperparameters import Hyperparameters
from ggbench.text import sanitize, shorten
from ggbench.units import format_bytes, format_count

CONFIG = "config.json"
LARGEST_JSON_BYTES = 16 << 20
"""Real ones take a few kilobytes, with a list of modules for each layer a few hundred; an index of tensors some MB."""
MOST_LAYERS = 1024
MOST_ELEMENTS = 1 << 31
"""Of one side of a matrix: above any vocabulary."""
DAMAGED_HINT = "the file is damaged or incomplete; download the checkpoint again"
_DTYPES = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "half": "f16", "float": "f32"}


class Config(msgspec.Struct, frozen=True):
    """One config.json; every reader raises BadFile, naming the key, for a value that is not what it has to be."""

    name: str
    """Of the checkpoint, for messages; printable."""
    values: Mapping[str, object]

    @property
    def architecture(self) -> str:
        """The class that Transformers loads it as, `Qwen2ForCausalLM`. Raises BadFile where none is named."""
        names = self.values.get("architectures")
        if not isinstance(names, list) or not names or not isinstance(names[0], str):
            raise BadFile(f"{self.name}: its {CONFIG} names no architecture", "give the folder of a language model")
        return sanitize(names[0])

    @property
    def dtype(self) -> str | None:
        """Return the type of the weights as saved: `bf16`, `f16` or `f32`; None where another is stated, or none."""
        stated = self.values.get("dtype", self.values.get("torch_dtype"))
        return _DTYPES.get(stated.removeprefix("torch.")) if isinstance(stated, str) else None

    @property
    def code_files(self) -> tuple[str, ...]:
        """Python files that the checkpoint asks Transformers to run, `auto_map`; printable."""
        named = self.values.get("auto_map")
        if not isinstance(named, dict):
            return ()
        parts = [each for value in named.values() for each in (value if isinstance(value, list) else [value])]
        modules = [each.rpartition("--")[2].partition(".")[0] for each in parts if isinstance(each, str) and each]
        return tuple(dict.fromkeys(f"{shorten(module, 60)}.py" for module in modules))

    @property
    def quantization(self) -> Config | None:
        """Return `quantization_config`, of a checkpoint that is stored quantized; None where there is none."""
        found = self.values.get("quantization_config")
        if found is None:
            return None
        if not isinstance(found, dict):
            raise self._wrong("quantization_config", found, "an object")
        return Config(self.name, found)

    def count(self, key: str, default: int | None = None, *, most: int = MOST_ELEMENTS) -> int:
        """Return a whole number from 1 to `most`; `default` where the key is absent or null."""
        value = self.values.get(key)
        if value is None:
            if default is None:
                raise BadFile(f"{self.name}: its {CONFIG} has no {key}", DAMAGED_HINT)
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise self._wrong(key, value, f"a whole number from 1 to {format_count(most)}")
        return value

    def optional_count(self, key: str) -> int | None:
        """Return a whole number above zero; None where the key is absent or null."""
        return None if self.values.get(key) is None else self.count(key)

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false; `default` where the key is absent or null."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def text(self, key: str, default: str = "") -> str:
        """Return a string; `default` where the key is absent or null."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self._wrong(key, value, "text")
        return value

    def texts(self, key: str) -> tuple[str, ...] | None:
        """Return a list of strings; None where the key is absent or null."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self._wrong(key, value, "a list of text")
        return tuple(value)

    def check_code(self, *, trusted: bool) -> None:
        """Raise Unsupported, naming the files, where only code of the checkpoint's own can load it and that is not
        trusted.
        """
        if self.code_files and not trusted:
            raise Unsupported(
                f"{self.name} is loaded by code of its own: {', '.join(self.code_files)}",
                "read that code first; --trust-remote-code lets it run",
            )

    def _wrong(self, key: str, value: object, expected: str) -> BadFile:
        return BadFile(
            f"{self.name}: {key} of its {CONFIG} has to be {expected}, not {_shown(value)}",
            DAMAGED_HINT,
        )


def parse_config(data: bytes, name: str) -> Config:
    """Return the config in these bytes; `name` is for messages. Raises BadFile."""
    return Config(name, decode_object(data, f"{CONFIG} of {name}"))


def read_json(path: Path, name: str) -> bytes:
    """Return the bytes of a JSON file of a checkpoint. Raises BadFile for one that is missing or far too large."""
    try:
        if not path.is_file():
            raise BadFile(f"{name} has no {path.name}", _missing_hint(path))
        with path.open("rb") as file:
            data = file.read(LARGEST_JSON_BYTES + 1)
    except OSError as error:
        raise BadFile(f"{path.name} of {name} cannot be read: {error.strerror}", "check the folder") from None
    if len(data) > LARGEST_JSON_BYTES:
        raise BadFile(f"{path.name} of {name} is larger than {format_bytes(LARGEST_JSON_BYTES)}", DAMAGED_HINT)
    return data


def decode_object(data: bytes | str, what: str) -> dict[str, object]:
    """Return the JSON object in these bytes; `what` is for messages. Raises BadFile, also for one nested too deep."""
    try:
        found = json.loads(data)
    except RecursionError:
        raise BadFile(f"{what} is nested too deep to be one", DAMAGED_HINT) from None
    except ValueError as error:  # also UnicodeDecodeError, and a number of more than 4300 digits
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "not UTF-8 text, or a number without end"
        where = f" in line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise BadFile(f"{what} is not valid JSON: {sanitize(reason)}{where}", DAMAGED_HINT) from None
    if not isinstance(found, dict):
        raise BadFile(f"{what} is not a JSON object", DAMAGED_HINT)
    return found


def _missing_hint(path: Path) -> str:
    if path.is_symlink():
        return "its link leads nowhere: the download did not finish; download the checkpoint again"
    if not path.parent.is_dir():
        return "check the path of the folder"
    if any(path.parent.glob("*.gguf")):
        return "the folder holds GGUF files: give it without transformers:"
    return "give the folder of a checkpoint, with config.json and safetensors"


def _shown(value: object) -> str:
    """Return a value of the file, cut: a number may have thousands of digits."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**18:
        return f"a number of more than {len(str(10**18)) - 1} digits"
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return shorten(repr(value), 40)


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
        raise Unsupported(f"{name} is {what}, of which no checkpoint is made", f"take twin:{name}, its GGUF twin")
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
