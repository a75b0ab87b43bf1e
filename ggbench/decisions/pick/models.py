"""The models that a pick chooses from: the quants of one, all on this disk, or the sizes of a family."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from ggbench.errors import BadFile, GgbenchError, UnknownName
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.quants import name_without_quant
from ggbench.hub.access import HubAccess
from ggbench.models.added_places import added_models
from ggbench.models.catalog import load_catalog
from ggbench.models.disk import LocalModel, find_local_models
from ggbench.models.reference import ModelRef
from ggbench.models.targets import Target, resolve_headers


class PickedModel(msgspec.Struct, frozen=True):
    """The quants of one model, whose losses compare."""

    key: str
    variants: tuple[Target, ...]


def of_model(
    ref: ModelRef,
    hub: HubAccess | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> tuple[tuple[Target, ...], tuple[PickedModel, ...]]:
    """Return what a reference means, as a plan has it; a folder may hold several models. Raises as `resolve_headers`.

    Where the quants of a folder are of several models, those named are looked for in each.
    """
    planned = resolve_headers(ref, hub=hub, on_progress=on_progress)
    return planned, of_planned(planned)


def of_planned(planned: Sequence[Target]) -> tuple[PickedModel, ...]:
    """Return the models whose quants a plan has read."""
    return _grouped((_model_name(variant), variant) for variant in planned)


def on_disk(quants: Sequence[str] = ()) -> tuple[PickedModel, ...]:
    """Return every model on this disk that can be run, without twins. Raises BadFile where there is none."""
    found = [*added_models(), *find_local_models()]
    usable = {each.paths: each for each in found if each.paths and not each.reason and not each.is_twin}
    wanted = {quant.lower() for quant in quants}
    models = [each for each in usable.values() if not wanted or each.quant in wanted]
    if not models:
        quant = f" of {', '.join(sorted(wanted))}" if wanted else ""
        raise BadFile(f"no model{quant} is on this disk", "name one: ggbench pick MODEL, e.g. org/name or qwen3-8b")
    return _grouped((f"{each.store} {name_without_quant(each.name)}", _of_local(each)) for each in models)


def of_family(name: str, quants: Sequence[str] = ()) -> tuple[PickedModel, ...]:
    """Return the sizes of a family of the catalog, `qwen3`, without files. Raises UnknownName."""
    catalog = load_catalog()
    wanted = name.strip().lower()
    ids = [model.id for model in catalog if model.id == wanted or model.id.startswith(f"{wanted}-")]
    if not ids:
        raise UnknownName("family", name, sorted({model.id.partition("-")[0] for model in catalog}))
    return tuple(
        PickedModel(
            model_id, resolve_headers(ModelRef("catalog", model_id, label=model_id).of_quants(*quants), catalog=catalog)
        )
        for model_id in ids
    )


def _of_local(model: LocalModel) -> Target:
    quant = model.quant or "unknown"
    try:
        file = read_model_file(model.paths[0], allow_missing_data=True)
    except GgbenchError as error:
        return Target(model.model, quant, "file", reason=error.message)
    return Target(model.model, quant, "file", model.paths[0], model.file_bytes, file=file)


def _model_name(variant: Target) -> str:
    """The name of the model that a file is of; MODEL where there is no file."""
    if variant.file is None or not variant.file.paths or variant.provenance == "hub":
        return variant.model
    return name_without_quant(variant.file.paths[0].name)


def _grouped(named: Iterable[tuple[str, Target]]) -> tuple[PickedModel, ...]:
    groups: dict[str, list[Target]] = {}
    for key, variant in named:
        groups.setdefault(key, []).append(variant)
    return tuple(PickedModel(key, tuple(variants)) for key, variants in groups.items())
