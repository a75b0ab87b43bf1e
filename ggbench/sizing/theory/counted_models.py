"""Resolve MODEL and QUANTs to a shape and its weights, without running; a catalog model needs no file."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ggbench.gguf_file.hyperparameters import build_metadata, build_model
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.quantizer import choose_types
from ggbench.gguf_file.quants import ftype_by_name
from ggbench.models.catalog import Catalog, CatalogModel, load_catalog
from ggbench.models.reference import ModelRef
from ggbench.plugins import load_plugin
from ggbench.sizing.theory.weights import (
    Weights,
    count_parameters,
    file_weights,
    scheme_bits,
    tensor_weights,
    uniform_weights,
)

SCHEMES = ("w16", "w8", "w6", "w4")
"""Default schemes for a catalog model."""


class CountedModel(msgspec.Struct, frozen=True):
    """A model's shape with its weights in the requested schemes and quants, in order."""

    model: str
    """MODEL as typed, without `:QUANT`; printable."""
    file: ModelFile
    """The model's shape; tensor types are those of one of its quants, or f16."""
    weights: tuple[Weights, ...]


def count_model(ref: ModelRef, catalog: Catalog | None = None) -> CountedModel:
    """Resolve a model and count its weights in the schemes (`w16`, `w4.5`) and quants (`q4_k_m`) named as its quants.

    Without any: w16, w8, w6 and w4 for a catalog model, the actual tensor types for a path, each method for a
    checkpoint. Raises as `catalog.selector.resolve` does, UsageError for a scheme without a width, Unsupported for an
    unknown tensor type.
    """
    if ref.engine:
        counted: CountedModel = load_plugin("ggbench.engines", ref.engine, "plan", "engine").count_model(ref, catalog)
        return counted
    catalog, kind = catalog or load_catalog(), ref.require_gguf().kind
    known = catalog.model(ref.name) if kind in ("catalog", "twin") else None
    if kind == "hub":
        known = catalog.of_repo(ref.name)
    return _from_files(ref) if known is None else _from_catalog(known, ref.quants or SCHEMES)


def _from_catalog(model: CatalogModel, asked: Sequence[str]) -> CountedModel:
    unquantized = build_model(model.hyper, model.id)
    parameters = count_parameters(unquantized)
    bits = {name: scheme_bits(name) for name in asked}
    ftypes = {name: ftype_by_name(name) for name, width in bits.items() if width is None}
    tensors = choose_types(build_metadata(model.hyper), unquantized.tensors, ftypes) if ftypes else {}
    weights = tuple(
        tensor_weights(tensors[name], parameters, name) if width is None else uniform_weights(parameters, width)
        for name, width in bits.items()
    )
    return CountedModel(model.id, unquantized, weights)


def _from_files(ref: ModelRef) -> CountedModel:
    from ggbench.models.targets import resolve  # imports repo and source modules that a catalog model does not need

    bits = {name: scheme_bits(name) for name in ref.quants}
    quants = [name for name, width in bits.items() if width is None]
    targets = resolve(ref.of_quants(*quants))
    files = {target.quant: target.header() for target in (targets if quants or not bits else targets[:1])}
    first = next(iter(files.values()))
    own = [file_weights(file, name) for name, file in files.items()] if quants or not bits else []
    uniform = [uniform_weights(count_parameters(first), width) for width in bits.values() if width is not None]
    return CountedModel(ref.label, first, (*own, *uniform))
