"""JSON of unmeasured models: GGUF headers, the catalog, this disk, and Hub repos."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.parser import ArrayLength
from ggbench.hub.repo_records import RepoListing, RepoSummary, VerifiedFile
from ggbench.models.catalog import CatalogUpdate
from ggbench.models.disk import LocalModel
from ggbench.show.answer import Answer, Table
from ggbench.show.document import RecordDocument
from ggbench.show.figure import Figure, figure_values, figures_type, member
from ggbench.show.models import HEADER, VARIANTS, CatalogRow, VariantRow
from ggbench.show.words import say
from ggbench.sizing.projectors import Encoder, encoders
from ggbench.units import counted, format_bytes

_FIELDS = {each.name: each.type for each in msgspec.structs.fields(ModelFile)}
INSPECT = RecordDocument(
    "inspect",
    "inspect FILE",
    "The header of a GGUF.",
    figures_type(
        "Header",
        HEADER,
        records={**_FIELDS, "tensor_types": dict[str, int], "encoders": tuple[Encoder, ...]},
    ),
)


def inspected(file: ModelFile) -> dict[str, object]:
    """Return the members of `INSPECT`."""
    metadata = {
        key: {"array_length": int(value)} if isinstance(value, ArrayLength) else value
        for key, value in file.metadata.items()
    }
    types = Counter(tensor.type_name for tensor in file.tensors)
    more = {"metadata": metadata, "tensor_types": dict(types.most_common()), "encoders": encoders(file)}
    return figure_values(HEADER, file) | msgspec.structs.asdict(file) | more


class Models(msgspec.Struct, frozen=True):
    rows: tuple[CatalogRow, ...]
    """The catalog."""
    files: tuple[LocalModel, ...]
    """The files on this disk."""


MODELS = RecordDocument("models", "models", "The catalog, and the files on this disk.", Models)


class ModelsInFolder(msgspec.Struct, frozen=True):
    rows: tuple[LocalModel, ...]


MODELS_IN_FOLDER = RecordDocument(
    "models.folder", "models --dir DIR", "The models in and below a folder.", ModelsInFolder
)
VERIFIED = RecordDocument(
    "models.verify", "models --verify FILE", "A file compared with the SHA-256 in its name.", VerifiedFile
)
UPDATED = RecordDocument(
    "models.update", "models --update FILE", "The installed catalog update.", CatalogUpdate
)
_Variant = figures_type("Variant", VARIANTS, "A quant of a repo.", {"here_bytes": int, "files": list[Path]})
REPO = RecordDocument(
    "models.repo",
    "models --repo ORG/NAME",
    "A repo of the Hub at one commit.",
    msgspec.defstruct("Repo", [("listing", RepoListing), ("rows", list[_Variant])]),  # type: ignore[valid-type]
)


def listed_repo(listing: RepoListing, rows: tuple[VariantRow, ...]) -> dict[str, object]:
    """Return the members of `REPO`."""
    found = [figure_values(VARIANTS, row) | {"here_bytes": row.here_bytes, "files": row.files} for row in rows]
    return {"listing": listing, "rows": found}


class FoundRepos(msgspec.Struct, frozen=True):
    search: str
    rows: tuple[RepoSummary, ...]


SEARCH = RecordDocument("models.search", "models --search TEXT", "The results of a Hub search.", FoundRepos)


class PulledFile(msgspec.Struct, frozen=True):
    path: Path
    n_bytes: int
    sha256: str | None
    outcome: str
    """`downloaded`, `copied` from the cache, or `already_here`."""
    moved_bytes: int
    """Bytes received over the network."""


class PulledQuant(msgspec.Struct, frozen=True):
    model: str
    quant: str | None
    commit: str
    file_bytes: int
    files: tuple[PulledFile, ...]


class Pulled(msgspec.Struct, frozen=True):
    rows: tuple[PulledQuant, ...]


PULLED = RecordDocument("pull", "pull MODEL [QUANT...]", "The downloaded quants.", Pulled)


class TwinFile(msgspec.Struct, frozen=True):
    """A twin that was written."""

    model: str
    quant: str
    file: Path
    file_bytes: int
    n_params: int
    bpw: float | None


class Twins(msgspec.Struct, frozen=True):
    rows: tuple[TwinFile, ...]


TWINS = RecordDocument("twin", "twin MODEL [QUANT...]", "The twins that were written.", Twins)
_TWINS = (
    member("quant", "quant"),
    member("file_bytes", "size", format_bytes),
    member("bpw", "BPW"),
    Figure[TwinFile]("file", "file", lambda twin: str(twin.file)),
)


def twins_answer(model: str, twins: Sequence[TwinFile]) -> Answer:
    command = shlex.join(["ggbench", "bench", *(str(twin.file) for twin in twins[:1])])
    return Answer(
        say("twin.written", twins=counted(len(twins), "twin"), model=model), command, [Table(_TWINS, twins)]
    )
