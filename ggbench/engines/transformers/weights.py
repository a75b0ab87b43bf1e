"""Load the weights of a checkpoint, or make random ones where its folder has a config alone."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

from ggbench.engines.contract import Stage
from ggbench.engines.llama.logs import is_out_of_memory
from ggbench.engines.llama.memory_limits import beside_the_limit
from ggbench.engines.transformers.config import TransformersConfig
from ggbench.text import sanitize, shorten

_SEED = 20240601
_TILE = 1 << 20
"""Random numbers that are made once and repeated: what a matrix holds changes no time, and making 7 billion takes a
minute."""
_STD = 0.02
"""`initializer_range` of most configs; activations of a random model stay finite with it."""
_CONVERTED = frozenset({"int8", "nf4", "nf4-dq"})
"""Methods by which bitsandbytes converts what it loads."""
_NEEDS_CUDA = frozenset({"gptq-int4", "gptq-int8", "awq-int4"})


def read_config(folder: Path, setup: TransformersConfig) -> Any:  # noqa: ANN401 - torch is not imported here
    """Return Transformers' config of a checkpoint, with all imported that loads its model. Raises ValueError."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(folder, trust_remote_code=setup.trust_remote_code, local_files_only=True)
    if type(config) in AutoModelForCausalLM._model_mapping:
        AutoModelForCausalLM._model_mapping[type(config)]
    if setup.method in _CONVERTED:
        importlib.import_module("bitsandbytes")
    return config


def load_model(folder: Path, config: Any, setup: TransformersConfig, device: str) -> Any:  # noqa: ANN401
    """Return the model, in evaluation mode, on one device. Raises TransformersRefused and what Transformers raises."""
    from transformers import AutoModelForCausalLM

    if setup.method in _NEEDS_CUDA and device == "cpu":
        raise TransformersRefused(
            "load", f"{setup.method} is computed on a CUDA GPU, and torch sees none; bf16, f16 and f32 need none"
        )
    options = {
        "dtype": torch_dtype(setup.dtype),
        "attn_implementation": setup.attention,
        "trust_remote_code": setup.trust_remote_code,
    }
    files = list(folder.glob("*.safetensors"))
    if not files:  # random weights are not stored in any way
        config.__dict__.pop("quantization_config", None)
    loaded = options | {"device_map": {"": device}} | _quantization(config, setup)
    if files:
        with beside_the_limit(sum(file.stat().st_size for file in files)):  # mapped while they are read
            model = AutoModelForCausalLM.from_pretrained(
                folder, config=config, local_files_only=True, use_safetensors=True, **loaded
            )
    elif setup.method in _NEEDS_CUDA:
        raise TransformersRefused("load", f"ggbench makes no random weights of {setup.method}; give a checkpoint")
    else:
        model = _random_model(config, options, loaded, device)
    model.eval()
    return model


def torch_dtype(name: str) -> Any:  # noqa: ANN401
    """Return torch's type of `bf16`, `f16` or `f32`."""
    import torch

    return {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[name]


def fill_randomly(model: Any, device: Any, dtype: Any) -> None:  # noqa: ANN401
    """Give every parameter of a model on `meta` memory and values: matrices normal, norms one, biases zero.

    Parameters that the config ties stay one.
    """
    import torch

    generator = torch.Generator().manual_seed(_SEED)
    tile = (torch.randn(_TILE, generator=generator) * _STD).to(dtype).to(device)
    made: dict[int, Any] = {}
    model.tie_weights()
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is None:
                continue
            if id(parameter) not in made:
                values = torch.empty(parameter.shape, dtype=dtype, device=device)
                if parameter.dim() < 2:
                    values.fill_(0.0 if name == "bias" else 1.0)
                else:
                    _repeat(values.view(-1), tile)
                made[id(parameter)] = torch.nn.Parameter(values, requires_grad=False)
            module._parameters[name] = made[id(parameter)]
    model.to(device)  # buffers, which are small and computed from the config


def _repeat(values: Any, tile: Any) -> None:  # noqa: ANN401
    for first in range(0, values.numel(), _TILE):
        part = values[first : first + _TILE]
        part.copy_(tile[: part.numel()])


def _random_model(config: Any, options: dict[str, Any], loaded: dict[str, Any], device: str) -> Any:  # noqa: ANN401
    """Return a model of random weights, converted where `loaded`, the options of a load from files, says so."""
    import torch

    model, dtype = _empty_model(config, options), options["dtype"]
    if "quantization_config" not in loaded:
        fill_randomly(model, torch.device(device), dtype)
        return model
    n_bytes = sum(parameter.numel() for parameter in model.parameters()) * dtype.itemsize
    with beside_the_limit(n_bytes):  # what is converted would be in a file
        fill_randomly(model, torch.device("cpu"), dtype)
        kind, state, model = type(model), model.state_dict(), None  # the Auto class asks for a folder
        return kind.from_pretrained(None, config=config, state_dict=state, **loaded)


def _empty_model(config: Any, options: dict[str, Any]) -> Any:  # noqa: ANN401
    from accelerate import init_empty_weights
    from transformers import AutoModelForCausalLM

    with init_empty_weights(include_buffers=False):
        return AutoModelForCausalLM.from_config(config, **options)


def _quantization(config: Any, setup: TransformersConfig) -> dict[str, Any]:  # noqa: ANN401
    """Return the option that converts at load; empty where nothing is converted, or the files already are."""
    stored = getattr(config, "quantization_config", None)
    if stored is not None or setup.method not in _CONVERTED:
        return {}
    from transformers import BitsAndBytesConfig

    if setup.method == "int8":
        return {"quantization_config": BitsAndBytesConfig(load_in_8bit=True)}
    return {
        "quantization_config": BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=setup.method == "nf4-dq",
            bnb_4bit_compute_dtype=torch_dtype(setup.dtype),
        )
    }


_WANTED = re.compile(r"tried to allocate (?P<count>[\d.]+) ?(?P<unit>bytes|[KMG]iB)", re.I)
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_CPU_ALLOCATOR = re.compile(r"can't allocate memory|not enough memory|cannot allocate memory", re.I)
"""Of c10's `alloc_cpu.cpp`; torch has no class of its own for it."""
_UNCLEAR = re.compile(r"could not create a (?:primitive|memory)|issues during automatic conversion of the weights")
"""What oneDNN says where its own buffers do not fit, and Transformers where bitsandbytes' do not; both may have other
causes, so it counts only under a limit.
"""
_LONGEST = 300


class TransformersRefused(Exception):
    """A request that cannot be carried out; the worker goes on."""

    def __init__(self, stage: Stage, message: str, *, out_of_memory: bool = False) -> None:
        super().__init__(message)
        self.stage = stage
        self.out_of_memory = out_of_memory


def is_memory_error(error: BaseException, *, is_limited: bool) -> bool:
    """Return whether an exception of torch means that memory ran out."""
    text = str(error)
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or is_out_of_memory(text)
        or bool(_CPU_ALLOCATOR.search(text))
        or (is_limited and bool(_UNCLEAR.search(text)))
    )


def wanted_bytes(error: BaseException) -> int | None:
    """Return how large the allocation was that failed; None where the exception does not say."""
    match = _WANTED.search(str(error))
    return None if match is None else round(float(match["count"]) * _UNITS[match["unit"]])


def one_line(error: BaseException) -> str:
    """Return the first line of an exception that says something, printable and cut."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else ""
    if text.startswith("[enforce fail"):  # c10's own place in its source comes before what it says
        text = text.partition("] ")[2].lstrip(". ") or text
    return shorten(sanitize(text or type(error).__name__), _LONGEST)
