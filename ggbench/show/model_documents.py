"""JSON of unmeasured models: GGUF headers, the catalog, this disk, and Hub repos."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.parser import ArrayLength
from ggbench.hub.download import FileProgress
from ggbench.hub.repo_records import RepoListing, RepoSummary
from ggbench.models.disk import LocalModel
from ggbench.models.sources import FoundVariant
from ggbench.show.answer import Answer, Table
from ggbench.show.document import Document, rows_document
from ggbench.show.figure import Figure, figure_values, figures_type, member
from ggbench.show.models import HEADER, VARIANTS, CatalogRow, VariantRow, quant_of
from ggbench.show.words import say
from ggbench.units import counted, format_bytes, format_params

_FIELDS = {each.name: each.type for each in msgspec.structs.fields(ModelFile)}
INSPECT = Document(
    "inspect",
    "inspect FILE",
    "The header of a GGUF.",
    figures_type(
        "Header",
        HEADER,
        records={**_FIELDS, "tensor_types": dict[str, int]},
    ),
)


def inspected(file: ModelFile) -> dict[str, object]:
    """Return the members of `INSPECT`."""
    metadata = {
        key: {"array_length": int(value)} if isinstance(value, ArrayLength) else value
        for key, value in file.metadata.items()
    }
    types = Counter(tensor.type_name for tensor in file.tensors)
    more = {"metadata": metadata, "tensor_types": dict(types.most_common())}
    return figure_values(HEADER, file) | msgspec.structs.asdict(file) | more


MODELS = rows_document(
    "models",
    "models [WORD... | FOLDER]",
    "Models of the catalog, and files on this disk or in a folder.",
    CatalogRow,
    files=list[LocalModel],
)
REPO = rows_document(
    "models.repo",
    "models ORG/NAME",
    "A repo of the Hub at one commit.",
    figures_type("Variant", VARIANTS, "A quant of a repo.", {"here_bytes": int, "files": list[Path]}),
    listing=RepoListing,
)


def listed_repo(listing: RepoListing, rows: Sequence[VariantRow]) -> dict[str, object]:
    """Return the members of `REPO`."""
    found = [figure_values(VARIANTS, row) | {"here_bytes": row.here_bytes, "files": row.files} for row in rows]
    return {"listing": listing, "rows": found}


SEARCH = rows_document(
    "models.search", "models --search TEXT", "The results of a Hub search.", RepoSummary, search=str
)
_PULLED = (
    member("model", "model", path="repo"),
    member("quant", "quant", path="variant.quant"),
    member("commit", "commit"),
    member("file_bytes", "size", path="variant.file_bytes"),
)
PULLED = rows_document(
    "pull",
    "pull MODEL [QUANT...]",
    "The downloaded quants.",
    figures_type(
        "PulledQuant",
        _PULLED,
        "A quant that was downloaded, with its files in order.",
        {"paths": list[Path], "files": list[FileProgress]},
    ),
)


def pulled_row(found: FoundVariant, pulled: Sequence[tuple[Path, FileProgress]]) -> dict[str, object]:
    """Return a row of `PULLED`."""
    paths, files = zip(*pulled, strict=True)
    return figure_values(_PULLED, found) | {"paths": paths, "files": files}


TWIN = (
    Figure[ModelFile]("quant", "quant", quant_of),
    member("file_bytes", "size", format_bytes),
    member("n_params", "parameters", format_params),
    member("bpw", "BPW"),
    Figure[ModelFile]("file", "file", lambda file: str(file.paths[0])),
)
TWINS = rows_document(
    "twin",
    "twin MODEL [QUANT...]",
    "The twins that were written.",
    figures_type("Twin", TWIN, "A twin that was written."),
    model=str,
)


def twins_answer(model: str, twins: Sequence[ModelFile]) -> Answer:
    command = shlex.join(["ggbench", "bench", str(twins[0].paths[0])])
    text = say("twin.written", twins=counted(len(twins), "twin"), model=model)
    return Answer(text, command, [Table(TWIN, twins)])
