"""The models that compete in a pick: those of one MODEL, of a folder or a repo, of this disk, or of the catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from ggbench.errors import GgbenchError, UnknownName, UsageError
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.quants import name_without_quant
from ggbench.hub.access import HubAccess
from ggbench.models.added_places import added_models
from ggbench.models.catalog import Catalog, load_catalog
from ggbench.models.disk import LocalModel, find_local_models
from ggbench.models.reference import ModelRef
from ggbench.models.targets import Target, resolve_headers
from ggbench.show.words import say


class PickedModel(msgspec.Struct, frozen=True):
    """The quants of one model; their losses are comparable."""

    key: str
    variants: tuple[Target, ...]
    superseded_by: frozenset[str] = frozenset()
    """Ids of the catalog's models that are run instead of it today."""


def of_model(
    ref: ModelRef, hub: HubAccess | None = None, on_progress: Callable[[int, int], None] | None = None
) -> tuple[tuple[Target, ...], tuple[PickedModel, ...]]:
    """Return the targets of a reference and the models among them. Raises like `resolve_headers`."""
    planned = resolve_headers(ref, hub=hub, on_progress=on_progress)
    return planned, of_planned(planned)


def of_planned(planned: Sequence[Target]) -> tuple[PickedModel, ...]:
    """Return the models of the targets of a plan, without the twins among files: their weights are random."""
    trained = [variant for variant in planned if variant.provenance != "twin"]
    return _grouped((_model_name(variant), variant) for variant in trained or planned)


def on_disk(quants: Sequence[str] = ()) -> tuple[PickedModel, ...]:
    """Return every runnable model on this disk except twins. Raises UsageError if there is none."""
    found = [*added_models(), *find_local_models()]
    usable = {each.paths: each for each in found if each.paths and not each.reason and not each.is_twin}
    wanted = {quant.lower() for quant in quants}
    models = [each for each in usable.values() if not wanted or each.quant in wanted]
    if not models:
        raise UsageError(
            say("pick.no_model", quant=" ".join(sorted(wanted)) or "model"), say("pick.no_model_hint")
        )
    return _grouped((f"{each.store} {name_without_quant(each.name)}", _of_local(each)) for each in models)


def of_families(names: Iterable[str], quants: Sequence[str] = ()) -> tuple[PickedModel, ...]:
    """Return the current models of families of the catalog, e.g. `qwen3.6`, without files. Raises UnknownName.

    Of a family that is superseded as a whole, all its models.
    """
    catalog, ids = load_catalog(), list[str]()
    for name in names:
        wanted = name.strip().lower()
        found = [model for model in catalog if model.id == wanted or model.id.startswith(f"{wanted}-")]
        if not found:
            raise UnknownName("family", name, sorted({model.family for model in catalog}))
        if not all(model.superseded_by for model in found):
            found = [model for model in found if model.id == wanted or not model.superseded_by]
        ids += [model.id for model in found]
    return of_catalog(tuple(dict.fromkeys(ids)), quants)


def of_catalog(ids: Sequence[str], quants: Sequence[str] = ()) -> tuple[PickedModel, ...]:
    """Return models of the catalog, by id or ID:QUANT, without files. Raises like `resolve_headers`."""
    catalog, quants_of = load_catalog(), dict[str, tuple[str, ...]]()
    for each in ids:
        name, _, quant = each.partition(":")
        quants_of[name] = (*quants_of.get(name, quants), *([quant] if quant else []))
    return tuple(_of_entry(catalog, name, own) for name, own in quants_of.items())


def _of_entry(catalog: Catalog, model_id: str, quants: Sequence[str]) -> PickedModel:
    ref = ModelRef("catalog", model_id, label=model_id).of_quants(*quants)
    newer = frozenset(each.id for each in catalog.successors(catalog.model(model_id)))
    return PickedModel(model_id, resolve_headers(ref, catalog=catalog), newer)


def _of_local(model: LocalModel) -> Target:
    quant = model.quant or "unknown"
    try:
        file = read_model_file(model.paths[0], allow_missing_data=True)
    except GgbenchError as error:
        return Target(model.model, quant, "file", reason=error.message)
    return Target(model.model, quant, "file", model.paths[0], model.file_bytes, file=file)


def _model_name(variant: Target) -> str:
    """Return the name of the model in a file; MODEL if there is no file."""
    if variant.file is None or not variant.file.paths or variant.provenance == "hub":
        return variant.model
    return name_without_quant(variant.file.paths[0].name)


def _grouped(named: Iterable[tuple[str, Target]]) -> tuple[PickedModel, ...]:
    groups: dict[str, list[Target]] = {}
    for key, variant in named:
        groups.setdefault(key, []).append(variant)
    return tuple(PickedModel(key, tuple(variants)) for key, variants in groups.items())
