"""A checkpoint as a `ModelFile` for the theory: its tensors follow from config.json and the method."""

from __future__ import annotations

import hashlib
import os
import re
from functools import cached_property
from pathlib import Path

from msgspec.structs import replace

from ggbench.errors import BadFile, UsageError
from ggbench.extras.transformers.config_json import (
    CONFIG,
    Config,
    linear_module,
    parse_config,
    read_json,
    unquantized_model,
)
from ggbench.extras.transformers.storage import METHODS, Method, method_by_name, stored_method
from ggbench.gguf_file.ggml_types import tensor_bytes
from ggbench.gguf_file.model_file import ModelFile, TensorInfo
from ggbench.record import Record
from ggbench.text import sanitize

_SINGLE = "model.safetensors"
_SHARD = re.compile(r"model-[0-9]{5}-of-([0-9]{5})\.safetensors")
_PARTIAL_HINT = "the download did not finish; download the checkpoint again"


class Checkpoint(Record, dict=True):
    """A config.json, and the size of the weights beside it."""

    config: Config
    config_bytes: bytes
    folder: Path | None = None
    file_bytes: int = 0
    """Size of its safetensors; 0 if only the config is known."""

    @property
    def name(self) -> str:
        return self.config.name

    @cached_property
    def unquantized(self) -> ModelFile:
        return unquantized_model(self.config)

    @cached_property
    def method(self) -> Method:
        return stored_method(self.config)

    def dtype(self, method: Method) -> str:
        """Return the type of unconverted tensors and of the cache: `bf16`."""
        return method.dtype or self.config.dtype or "bf16"

    def method_named(self, name: str) -> Method:
        """Return the method of this name: the checkpoint's own, with its group size, or the standard one.

        Raises UnknownName.
        """
        own = self.method
        return own if own.name == name.lower() else method_by_name(name)

    def methods(self) -> tuple[Method, ...]:
        """Return its possible methods: only its own if it is quantized, otherwise also those that convert at load."""
        own = self.method
        if own.quant_method is not None:
            return (own,)
        loaded = [method for method in METHODS.values() if method.quant_method in (None, "bitsandbytes")]
        return (own, *(method for method in loaded if method.name != own.name))

    def require(self, method: Method) -> None:
        self._require_own(method)
        if self.method.quant_method is None and method.quant_method in ("gptq", "awq"):
            raise UsageError(
                f"{self.name} is stored as {self.method.name}, but {method.name} needs a checkpoint quantized with it",
                f"take one whose name ends in {'GPTQ-Int4' if method.quant_method == 'gptq' else 'AWQ'}, "
                "or int8 or nf4, which convert at load",
            )

    def model_file(self, method: Method) -> ModelFile:
        """Return the model as loaded by this method.

        The tensors are named as in a GGUF, each with all bytes stored for it. Raises Unsupported, BadFile and
        UsageError.
        """
        self._require_own(method)
        tensors = tuple(self._stored(each, method) for each in self.unquantized.tensors)
        return replace(
            self.unquantized,
            version=None,
            paths=() if self.folder is None else (self.folder,),
            file_bytes=self.file_bytes or sum(each.n_bytes or 0 for each in tensors),
            metadata=dict(self.config.values),
            tensors=tensors,
            header_sha256=hashlib.sha256(self.config_bytes).hexdigest(),
        )

    def _stored(self, tensor: TensorInfo, method: Method) -> TensorInfo:
        if method.converted_bytes is None or not self._is_converted(tensor, method):
            dtype = self.dtype(method)
            return replace(tensor, type_name=dtype, n_bytes=tensor_bytes(dtype, tensor.shape))
        n_in, n_out = tensor.shape
        return replace(tensor, type_name=method.name, n_bytes=method.converted_bytes(n_out, n_in))

    def _is_converted(self, tensor: TensorInfo, method: Method) -> bool:
        """Return whether the tensor is quantized: a linear layer that the checkpoint does not leave out."""
        module, quantization = linear_module(tensor.name), self.config.quantization
        if quantization is None:
            return module is not None
        if module is None:
            is_output = tensor.name == "output.weight"
            return is_output and method.quant_method == "gptq" and quantization.flag("lm_head", False)
        keys = ("modules_to_not_convert", "llm_int8_skip_modules")
        return not any(left_out in module for key in keys for left_out in quantization.read(key, list[str], ()))

    def _require_own(self, method: Method) -> None:
        """Raise UsageError if it is quantized by another method."""
        own = self.method
        if own.quant_method is not None and method.name != own.name:
            raise UsageError(
                f"{self.name} is stored as {own.name}, but {method.name} was requested",
                f"use {own.name}, or the unquantized checkpoint",
            )


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read config.json, and find the safetensors, if any. Raises BadFile for a damaged or missing file."""
    name = sanitize(folder.name or str(folder))
    data = read_json(folder / CONFIG, name)
    return Checkpoint(parse_config(data, name), data, folder, _weight_bytes(folder, name))


def _weight_bytes(folder: Path, name: str) -> int:
    """Return the size of the safetensors, 0 if there are none. Raises BadFile if one is missing."""
    files = [folder / _SINGLE]
    if not os.path.lexists(files[0]):
        files = sorted(path for path in folder.iterdir() if _SHARD.fullmatch(path.name))
    found = [path.stat().st_size for path in files if path.is_file()]
    shard = _SHARD.fullmatch(files[0].name) if files else None
    if len(found) != (int(shard[1]) if shard else len(files)):
        raise BadFile(f"{name} has only {len(found)} of its safetensors files", _PARTIAL_HINT)
    return sum(found)
