"""What MODEL and QUANTs mean where a model is counted and not run: its shape, and weights of each scheme or quant.

A catalog model needs no file for that: its header is drawn, and llama.cpp is asked only for what its quants hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ggbench.catalog.models import Catalog, CatalogModel, load_catalog
from ggbench.catalog.reference import CatalogRef, HubRef, ModelRef, SynthRef, model_label, parse_model, wanted_quants
from ggbench.gguf_file.blueprint import draw_metadata
from ggbench.gguf_file.drawn_model import draw_model
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.quantizer import choose_types
from ggbench.gguf_file.quants import ftype_by_name
from ggbench.theory.parameters import count_parameters
from ggbench.theory.weights import Weights, file_weights, scheme_bits, tensor_weights, uniform_weights

if TYPE_CHECKING:
    from ggbench.catalog.selector import Target

SCHEMES = ("w16", "w8", "w6", "w4")
"""What a catalog model is counted in when nothing is named."""


@dataclass(frozen=True, slots=True)
class CountedModel:
    """One model with the weights to count it in, in the order they were asked for."""

    model: str
    """As the person wrote it, a `:QUANT` at its end left out; printable."""
    file: ModelFile
    """Its shape; the tensors' types are those of one of its quants, or f16."""
    weights: tuple[Weights, ...]


def count_model(model: str, schemes: Sequence[str] = (), catalog: Catalog | None = None) -> CountedModel:
    """The model that MODEL means, counted in schemes (`w16`, `w4.5`) and quants (`q4_k_m`).

    Without `schemes`: w16, w8, w6 and w4 for a model of the catalog, and what the files hold for a path. Raises as
    `catalog.selector.resolve` does, UsageError for a scheme of no size, Unsupported where a tensor's type is unknown.
    """
    ref = parse_model(model)
    asked = wanted_quants(ref, schemes)
    known = _catalog_model(ref, catalog or load_catalog())
    if known is not None:
        return _from_catalog(known, asked or SCHEMES)
    return _from_files(model, ref, asked)


def _catalog_model(ref: ModelRef, catalog: Catalog) -> CatalogModel | None:
    """The catalog's model, where the reference is to one."""
    if isinstance(ref, CatalogRef | SynthRef):
        return catalog.model(ref.id)
    if isinstance(ref, HubRef):
        return next((entry for entry in catalog if (entry.repo or "").lower() == ref.repo.lower()), None)
    return None


def _from_catalog(model: CatalogModel, asked: Sequence[str]) -> CountedModel:
    drawn = draw_model(model.hyper, model.id)
    parameters = count_parameters(drawn)
    bits = {name: scheme_bits(name) for name in asked}
    ftypes = {name: ftype_by_name(name) for name, width in bits.items() if width is None}
    tensors = choose_types(draw_metadata(model.hyper), drawn.tensors, ftypes) if ftypes else {}
    tied = model.hyper.tied_embeddings
    weights = tuple(
        tensor_weights(tensors[name], parameters, name, tied=tied)
        if width is None
        else uniform_weights(parameters, width)
        for name, width in bits.items()
    )
    return CountedModel(model.id, drawn, weights)


def _from_files(model: str, ref: ModelRef, asked: Sequence[str]) -> CountedModel:
    from ggbench.catalog.selector import resolve  # brings repos and sources, which a model of the catalog does without

    bits = {name: scheme_bits(name) for name in asked}
    label, quant = model_label(model, ref), ref.quant
    base = model if quant is None or bits[quant.lower()] is None else model[: -len(quant) - 1]
    quants = [name for name, width in bits.items() if width is None]
    targets = resolve(base, quants)
    files = {target.quant: _read(target) for target in (targets if quants or not asked else targets[:1])}
    first = next(iter(files.values()))
    own = [file_weights(file, name) for name, file in files.items()] if quants or not asked else []
    uniform = [uniform_weights(count_parameters(first), width) for width in bits.values() if width is not None]
    return CountedModel(label, first, (*own, *uniform))


def _read(target: Target) -> ModelFile:
    if target.source is not None:
        return target.source.header()
    assert target.path is not None
    return read_model_file(target.path, allow_missing_data=True)
