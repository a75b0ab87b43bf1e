"""A checkpoint, from its config alone or with its safetensors, as a `ModelFile` for the theory."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import msgspec
from msgspec.structs import asdict, replace

from ggbench.engines.transformers.config_json import (
    CONFIG,
    TWIN_KEY,
    Config,
    Layout,
    Parameter,
    parse_config,
    read_json,
    read_layout,
)
from ggbench.engines.transformers.storage import (
    METHODS,
    Method,
    SafetensorsHeader,
    Stored,
    method_by_name,
    read_safetensors,
    stored_method,
    weight_map,
)
from ggbench.errors import BadFile, UsageError
from ggbench.gguf_file.model_file import ModelFile, TensorInfo
from ggbench.text import sanitize, shorten

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_MOST_NAMED = 3
_PARTIAL_HINT = "the download did not finish; download the checkpoint again"


class Shard(msgspec.Struct, frozen=True):
    name: str
    path: Path | None
    header: SafetensorsHeader


class Checkpoint(msgspec.Struct, frozen=True, dict=True):
    """A config.json, with the data known of its safetensors."""

    config: Config
    config_bytes: bytes
    folder: Path | None = None
    shards: tuple[Shard, ...] = ()
    """Empty if only the config is known."""

    @property
    def name(self) -> str:
        return self.config.name

    @cached_property
    def layout(self) -> Layout:
        return read_layout(self.config)

    @cached_property
    def method(self) -> Method:
        return stored_method(self.config)

    @property
    def is_twin(self) -> bool:
        """Whether ggbench wrote the config; the weights are then random."""
        return TWIN_KEY in self.config.values

    @property
    def tensors(self) -> tuple[Stored, ...]:
        return tuple(tensor for shard in self.shards for tensor in shard.header.tensors)

    @property
    def missing_bytes(self) -> int:
        return sum(shard.header.missing_bytes for shard in self.shards)

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
        """Return the model as loaded by this method; for its own method, with the sizes in its files, if known.

        The tensors are named as in a GGUF, each with all bytes stored for it. Raises Unsupported, BadFile and
        UsageError.
        """
        self._require_own(method)
        layout, parameters = self.layout, self._converted(method)
        dtype = self.dtype(method)
        expected = {parameter: method.stored(parameter, dtype) for parameter in parameters}
        stored_bytes = {parameter: sum(each.n_bytes for each in stored) for parameter, stored in expected.items()}
        if self.shards and method.name == self.method.name:
            stored_bytes = self._bytes_in_files(expected)
        tensors = []
        for each in parameters:
            type_name = method.name if each.is_converted and method.convert is not None else dtype
            tensors.append(TensorInfo(each.gguf_name, each.shape[::-1], type_name, stored_bytes[each]))
        weight_bytes = sum(stored_bytes.values())
        file_bytes = sum(shard.header.n_bytes for shard in self.shards)
        headers = b"".join(shard.header.raw for shard in self.shards)
        return ModelFile(
            **asdict(layout.shape),
            name=self.name,
            paths=() if self.folder is None else (self.folder,),
            file_bytes=(file_bytes - self.missing_bytes) or weight_bytes,
            architecture=layout.architecture,
            metadata=dict(self.config.values) | ({"ggbench.twin": self.name} if self.is_twin else {}),
            tensors=tuple(tensors),
            header_sha256=hashlib.sha256(self.config_bytes + headers).hexdigest(),
            missing_bytes=self.missing_bytes,
        )

    def _require_own(self, method: Method) -> None:
        """Raise UsageError if it is quantized by another method."""
        own = self.method
        if own.quant_method is not None and method.name != own.name:
            raise UsageError(
                f"{self.name} is stored as {own.name}, but {method.name} was requested",
                f"use {own.name}, or the unquantized checkpoint",
            )

    def _converted(self, method: Method) -> tuple[Parameter, ...]:
        """Return the parameters; those excluded from its quantization are not marked as converted."""
        quantization = self.config.quantization
        if quantization is None:
            return self.layout.parameters
        keys = ("modules_to_not_convert", "llm_int8_skip_modules")
        left_out = [each for key in keys for each in quantization.read(key, list[str], [])]
        converts_output = method.quant_method == "gptq" and quantization.flag("lm_head", False)

        def is_converted(parameter: Parameter) -> bool:
            if parameter.name == "lm_head.weight":
                return converts_output
            return parameter.is_converted and not any(each in parameter.name for each in left_out)

        return tuple(replace(each, is_converted=is_converted(each)) for each in self.layout.parameters)

    def _bytes_in_files(self, expected: dict[Parameter, tuple[Stored, ...]]) -> dict[Parameter, int]:
        """Return the bytes of each parameter in its files. Raises BadFile if they contain another model."""
        found = {tensor.name: tensor for tensor in self.tensors}
        names = [each.name for stored in expected.values() for each in stored if not each.name.endswith("quant_map")]
        missing = [name for name in names if name not in found]
        if missing:
            raise BadFile(
                f"the files of {self.name} lack {_named(missing, 'tensors')} that its config.json requires",
                "config.json and safetensors are of different models or methods; download the checkpoint again",
            )
        sizes: defaultdict[Parameter, int] = defaultdict(int)
        for parameter, stored in expected.items():
            for each in stored:
                tensor = found.get(each.name, each)
                if tensor.shape != each.shape:
                    held, expected_shape = (" x ".join(map(str, shape)) for shape in (tensor.shape, each.shape))
                    raise BadFile(
                        f"{self.name}: {tensor.name} is {held} in the file and {expected_shape} by config.json",
                        "config.json and safetensors are of different models; download the checkpoint again",
                    )
                sizes[parameter] += tensor.n_bytes
        return dict(sizes)


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read config.json and the headers of the safetensors, if any. Raises BadFile for a damaged or missing file."""
    name = sanitize(folder.name or str(folder))
    data = read_json(folder / CONFIG, name)
    return Checkpoint(parse_config(data, name), data, folder, _read_shards(folder, name))


def checkpoint_of(config: Config, folder: Path | None = None) -> Checkpoint:
    """Return the checkpoint of a config without known files."""
    return Checkpoint(config, json.dumps(config.values, sort_keys=True).encode(), folder)


def _read_shards(folder: Path, name: str) -> tuple[Shard, ...]:
    if (folder / INDEX).exists():
        places = weight_map(read_json(folder / INDEX, name), name)
        files = sorted(set(places.values()))
        absent = [file for file in files if not (folder / file).is_file()]
        if absent:
            raise BadFile(f"{name} lacks {_named(absent, 'files')} of {len(files)}", _PARTIAL_HINT)
        shards = tuple(_read_shard(folder / file, file) for file in files)
        held = {(tensor.name, shard.name) for shard in shards for tensor in shard.header.tensors}
        if wrong := [tensor for tensor, file in places.items() if (tensor, file) not in held]:
            raise BadFile(f"{name}: {_named(wrong, 'tensors')} in its index are not in its files", _PARTIAL_HINT)
        return shards
    if (folder / SINGLE).is_symlink() and not (folder / SINGLE).exists():
        raise BadFile(f"{name} lacks {SINGLE}: its link is broken", _PARTIAL_HINT)
    if (folder / SINGLE).is_file():
        return (_read_shard(folder / SINGLE, SINGLE),)
    if part := next((path.name for path in folder.glob("model-*-of-*.safetensors")), None):
        raise BadFile(f"{name} has {sanitize(part)}, but no {INDEX}", _PARTIAL_HINT)
    return ()


def _read_shard(path: Path, name: str) -> Shard:
    try:
        with path.open("rb") as file:
            return Shard(name, path, read_safetensors(file, path.stat().st_size, sanitize(name)))
    except OSError as error:
        raise BadFile(
            f"{sanitize(name)} cannot be read: {error.strerror}", "check the file's permissions and the disk"
        ) from None


def _named(names: Sequence[str], kind: str) -> str:
    """Return `a.safetensors`, or `5 files (a, b, c, …)`."""
    shown = ", ".join(shorten(name, 60) for name in names[:_MOST_NAMED])
    return shown if len(names) == 1 else f"{len(names)} {kind} ({shown}{', …' if len(names) > _MOST_NAMED else ''})"
