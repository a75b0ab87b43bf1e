"""What decoding reads in a row of llama-bench, from the shape of its model, for scripts/fit_speeds."""

from __future__ import annotations

import contextlib
import functools
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from ggbench.errors import GgbenchError
from ggbench.gguf_file.hyperparameters import Hyperparameters
from ggbench.gguf_file.layout import build_metadata, build_model
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.quantizer import choose_types
from ggbench.gguf_file.quants import ftype_by_name
from ggbench.models.catalog import load_catalog
from ggbench.models.published.benches import BenchedRow
from ggbench.sizing.theory.kv_cache import Growth, KvCache, kv_cache
from ggbench.sizing.theory.weights import file_weights

_SHAPES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_NEAR = 0.01
"""Difference of parameters from the row's, up to which it is the model."""


class Shape(msgspec.Struct, frozen=True):
    """What a token of a row's model costs."""

    architecture: str
    n_layer: int
    read_bytes: float
    weight_bytes: float
    n_active: float
    """Parameters of one token."""
    kv: KvCache
    """In f16: a quantized cache is read in no less time."""
    is_moe: bool
    expert_read_bytes: float | None = 0.0
    """Part of `read_bytes` that is of routed experts; None if it is not known."""


def shape_of(row: BenchedRow) -> Shape | None:
    """Return the shape of a row's model; None if it is not known, or is another model's by its parameters."""
    name = _SHAPES["aliases"].get(row.model, row.model)
    for each in (f"{name}/{(row.n_params or 0) / 1e9:.6g}", name):
        if each in _SHAPES["catalog"]:
            return _built(row, name, load_catalog().model(_SHAPES["catalog"][each]).hyper)
        if each in _SHAPES["hyperparameters"]:
            hyper = {"n_ctx_train": 4096, **_SHAPES["hyperparameters"][each]}
            return _built(row, name, msgspec.convert(hyper, Hyperparameters))
        if each in _SHAPES["others"]:
            return _estimated(row, name, _SHAPES["others"][each])
    return None


def _built(row: BenchedRow, name: str, catalog: Hyperparameters) -> Shape | None:
    hyper = next((each for each in _with_drafting(catalog) if _is_of(row, each)), None)
    if hyper is None:
        return None
    file, _ = _unquantized(hyper)
    quant = {"mxfp4": "mxfp4_moe"}.get(row.quant, row.quant)
    try:
        weights, n_bytes = _quantized(hyper, quant)
    except GgbenchError:  # such as a mix of one publisher, q4_k_m is as good for the shares of its parts
        weights, n_bytes = _quantized(hyper, "q4_k_m")
    weight_bytes = row.weight_bytes or n_bytes
    return Shape(
        name.split()[0],
        hyper.n_layer,
        weights.read_bytes() * weight_bytes / n_bytes,
        weight_bytes,
        weights.parameters.active,
        kv_cache(file),
        bool(file.n_expert),
        weights.expert_bytes * weights.parameters.expert_share * weight_bytes / n_bytes
        if file.n_expert
        else 0.0,
    )


def _is_of(row: BenchedRow, hyper: Hyperparameters) -> bool:
    """Return whether a model of this shape has as many parameters as the row's."""
    return not row.n_params or abs(row.n_params / _unquantized(hyper)[1] - 1) <= _NEAR


def _with_drafting(hyper: Hyperparameters) -> Iterator[Hyperparameters]:
    """Yield the shape, and that of files made since llama.cpp drafts, with the layer that does if it has one."""
    yield hyper
    with contextlib.suppress(GgbenchError):
        yield replace(hyper, n_layer_nextn=1)


@functools.cache
def _unquantized(hyper: Hyperparameters) -> tuple[ModelFile, int]:
    file = build_model(hyper, "")
    return file, sum(tensor.n_elements for tensor in file.tensors)


@functools.cache
def _quantized(hyper: Hyperparameters, quant: str) -> tuple[Any, int]:
    file, _ = _unquantized(hyper)
    tensors = choose_types(build_metadata(hyper), file.tensors, {quant: ftype_by_name(quant)})[quant]
    n_bytes = sum(tensor.n_bytes or 0 for tensor in tensors)
    return file_weights(replace(file, tensors=tensors, n_layer_nextn=0), quant), n_bytes


def _estimated(row: BenchedRow, name: str, shape: dict[str, Any]) -> Shape | None:
    """Return the shape by a few numbers, with as many bits for every parameter."""
    if not row.weight_bytes or not row.n_params:
        return None
    n_table = shape["n_embd"] * shape["n_vocab"]
    n_active = row.n_params - (0 if shape.get("tied") else n_table)
    if "active" in shape:
        n_active = shape["active"] * 1e9
    limits = {"swa": shape.get("window"), "kv": None}
    growths = tuple(Growth(limit, read_bytes=2 * shape.get(key, 0)) for key, limit in limits.items())
    kv = KvCache(growths=growths, state_bytes=shape.get("state", 0) << 20)
    of_one = row.weight_bytes / row.n_params
    experts = shape["experts"] * 1e9 * of_one if "experts" in shape else None if "active" in shape else 0.0
    name = name.split()[0]
    return Shape(
        name, shape["n_layer"], n_active * of_one, row.weight_bytes, n_active, kv, "active" in shape, experts
    )
