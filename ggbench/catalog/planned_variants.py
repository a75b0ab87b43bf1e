"""What MODEL and QUANTs mean where headers are enough: files on this disk, or a catalog model's quants unmade.

Nothing is written and no tensor is read, so a model need not be downloaded, and a file may be its header alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ggbench.catalog.models import Catalog, CatalogModel, load_catalog
from ggbench.catalog.selector import ARTICLE_QUANTS, CatalogRef, HubRef, SynthRef, Target, parse_model, resolve
from ggbench.errors import BadFile, GgbenchError
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.model_file import ModelFile

Provenance = Literal["file", "twin", "catalog"]


@dataclass(frozen=True, slots=True)
class PlannedVariant:
    """One quant of one model with its header."""

    model: str
    """As the person wrote it, a `:QUANT` at its end left out; printable."""
    quant: str
    provenance: Provenance
    """`catalog`: a header drawn from the catalog's hyperparameters, its types chosen by llama.cpp's quantizer."""
    file: ModelFile | None
    """None where it cannot be read."""
    reason: str = ""
    """Why not, in one line."""


def planned_variants(
    model: str, quants: Sequence[str] = (), catalog: Catalog | None = None
) -> tuple[PlannedVariant, ...]:
    """The variants that MODEL and QUANTs mean, in the order of the quants; a catalog model needs no file.

    Without quants: the article's eight of a catalog model, every variant of a folder. A file that cannot be read is a
    variant with the reason, unless it is the only one. Raises as `catalog.selector.resolve` and `plan_twin` do.
    """
    ref = parse_model(model)
    catalog = catalog or load_catalog()
    known = _known(ref, catalog)
    if known is None:
        targets = resolve(model, quants, catalog=catalog)
        return tuple(_from_disk(target, alone=len(targets) == 1) for target in targets)
    wanted = tuple(dict.fromkeys(quant.lower() for quant in (ref.quant, *quants) if quant is not None))
    return _from_catalog(known, wanted or ARTICLE_QUANTS)


def _known(ref: object, catalog: Catalog) -> CatalogModel | None:
    if isinstance(ref, CatalogRef | SynthRef):
        return catalog.model(ref.id)
    if isinstance(ref, HubRef):
        return next((entry for entry in catalog if (entry.repo or "").lower() == ref.repo.lower()), None)
    return None


def _from_catalog(model: CatalogModel, quants: Sequence[str]) -> tuple[PlannedVariant, ...]:
    from ggbench.gguf_file.twin import plan_twin

    planned = plan_twin(model.hyper, quants, name=model.id, source=f"catalog:{model.id}")
    return tuple(PlannedVariant(model.id, quant, "catalog", planned[quant]) for quant in quants)


def _from_disk(target: Target, *, alone: bool) -> PlannedVariant:
    provenance: Provenance = "twin" if target.provenance == "twin" else "file"
    if target.path is None:
        raise BadFile(f"{target.model} has no file here", "name a .gguf file, or a folder that holds some")
    try:
        file = read_model_file(target.path, allow_missing_data=True)
    except GgbenchError as error:
        if alone:
            raise
        return PlannedVariant(target.model, target.quant, provenance, None, error.message)
    return PlannedVariant(target.model, target.quant, provenance, file)
