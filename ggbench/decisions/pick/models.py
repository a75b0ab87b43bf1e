"""The models that compete in a pick: those of one MODEL, of a folder or a repo, of this disk, or of the catalog."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ggbench.decisions.pick.order import SHARE_OF_SCORED
from ggbench.errors import GgbenchError, UnknownName, UsageError
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.layout import count_params
from ggbench.gguf_file.quants import name_without_quant, plain_quant
from ggbench.models.added_places import added_models
from ggbench.models.catalog import Catalog, CatalogModel, load_catalog
from ggbench.models.disk import LocalModel, find_local_models
from ggbench.models.reference import ModelRef
from ggbench.models.targets import Target, resolve_headers
from ggbench.record import Record
from ggbench.show.words import say


class PickedModel(Record):
    """The quants of one model; their losses are comparable."""

    key: str
    variants: tuple[Target, ...]
    superseded_by: frozenset[str] = frozenset()
    """Ids of the catalog's models that are run instead of it today."""
    score: float = 0.0
    """Percent of GPQA Diamond that it counts for; 0 if nobody knows."""
    score_source: str = ""
    """Empty if the score is not its own."""


class Competitors(Record):
    """What a pick chooses among: models of which all quants are sized, or entries of the catalog of which few are."""

    models: tuple[PickedModel, ...] = ()
    entries: tuple[CatalogModel, ...] = ()
    local: tuple[LocalModel, ...] = ()
    """Files that take the place of those to download of entries."""


def scores(entries: Iterable[CatalogModel]) -> dict[str, float]:
    """Return what each model counts for, in percent of GPQA Diamond, by id: its publisher's score, or that of the best
    scored one of its kind of at most a quarter of its parameters; 0 without one.
    """
    sized = [(each, count_params(each.hyper)) for each in entries]
    found = {}
    for entry, n_params in sized:
        lesser = (
            each.score or 0.0
            for each, n in sized
            if SHARE_OF_SCORED * n <= n_params and is_mixture(each) is is_mixture(entry)
        )
        found[entry.id] = entry.score or max(lesser, default=0.0)
    return found


def is_mixture(entry: CatalogModel) -> bool:
    return entry.hyper.n_expert > 0


def of_planned(planned: Sequence[Target]) -> tuple[PickedModel, ...]:
    """Return the models of the targets of a plan, without the twins among files: their weights are random."""
    trained = [variant for variant in planned if variant.provenance != "twin"]
    return _grouped((_model_name(variant), variant) for variant in trained or planned)


def models_here() -> tuple[LocalModel, ...]:
    """Return the runnable models on this disk except twins, each file once."""
    return tuple(
        {each.paths: each for each in (*added_models(), *find_local_models()) if each.is_runnable}.values()
    )


def on_disk() -> tuple[PickedModel, ...]:
    """Return every runnable model on this disk except twins. Raises UsageError if there is none."""
    models = models_here()
    if not models:
        raise UsageError(say("pick.no_model"), say("pick.no_model_hint"))
    return _grouped((f"{each.store} {name_without_quant(each.name)}", _of_local(each)) for each in models)


def split_ids(model: str | None, quants: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the ids, or ID:QUANT, of the catalog's models that are compared, none for a single MODEL, and the QUANTS.

    Raises UsageError if MODEL is not in the catalog and another one is.
    """
    catalog = load_catalog()
    others = [word for word in quants if catalog.find(word.partition(":")[0])]
    if model is None or not others:
        return (), tuple(quants)
    if catalog.find(model.partition(":")[0]) is None:
        raise UsageError(say("pick.not_compared", model=model, other=others[0]), say("pick.not_compared_hint"))
    ids = dict.fromkeys(map(str.lower, (model, *others)))
    return tuple(ids), tuple(word for word in quants if word not in others)


def of_families(names: Iterable[str]) -> tuple[CatalogModel, ...]:
    """Return the current models of families of the catalog, e.g. `qwen3.6`, or without any all. Raises UnknownName.

    Of a family that is superseded as a whole, all its models; one that is named by its id in any case.
    """
    catalog = load_catalog()
    entries = {model.id: model for name in names for model in _of_family(catalog, name.strip().lower())}
    return tuple(entries.values()) or catalog.current


def _of_family(catalog: Catalog, name: str) -> list[CatalogModel]:
    found = catalog.family(name)
    if not found:
        raise UnknownName("family", name, sorted({model.family for model in catalog}))
    return [model for model in found if not model.superseded_by] or list(found)


def of_catalog(ids: Sequence[str], quants: Sequence[str] = ()) -> tuple[PickedModel, ...]:
    """Return models of the catalog, by id or ID:QUANT, without files. Raises like `resolve_headers`."""
    catalog, quants_of = load_catalog(), dict[str, tuple[str, ...]]()
    for each in ids:
        name, _, quant = each.partition(":")
        quants_of[name] = (*quants_of.get(name, quants), *([quant] if quant else []))
    counted = scores(catalog)
    return tuple(of_entry(catalog, catalog.model(name), counted[name], own) for name, own in quants_of.items())


def of_entry(
    catalog: Catalog,
    entry: CatalogModel,
    score: float,
    quants: Sequence[str] = (),
    local: Iterable[LocalModel] = (),
) -> PickedModel:
    """Return a model of the catalog with these quants, or the usual ones; those among the local files are the files."""
    ref = ModelRef("catalog", entry.id, label=entry.id).of_quants(*quants)
    here = {plain_quant(each.quant or ""): each for each in local if _is_of(each, entry)}
    variants = tuple(
        _of_local(here[each.quant], entry.id) if each.quant in here else each
        for each in resolve_headers(ref, catalog=catalog)
    )
    newer = frozenset(each.id for each in catalog.successors(entry))
    return PickedModel(entry.id, variants, newer, score, entry.score_source)


def _is_of(local: LocalModel, entry: CatalogModel) -> bool:
    """Return whether a file is from the model's repo, or has the name of its files."""
    named = name_without_quant((entry.file_pattern or "").format(quant="q4_k_m")).lower()
    return (
        local.model.lower() == (entry.repo or "").lower()
        or name_without_quant(local.paths[0].name).lower() == named
    )


def _of_local(model: LocalModel, name: str = "") -> Target:
    """Return a file as a target, by a name other than its own."""
    quant, name = model.quant or "unknown", name or model.model
    try:
        file = read_model_file(model.paths[0])
    except GgbenchError as error:
        return Target(name, quant, "file", reason=error.message)
    return Target(name, quant, "file", model.paths[0], model.file_bytes, file=file)


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
