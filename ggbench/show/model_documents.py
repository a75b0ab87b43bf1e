"""JSON of unmeasured models: GGUF headers, the catalog, this disk, and Hub repos."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from ggbench.errors import Unsupported
from ggbench.gguf_file.layout import count_params
from ggbench.gguf_file.model_file import ModelFile, TensorInfo
from ggbench.gguf_file.parser import ArrayLength
from ggbench.gguf_file.quants import quant_label
from ggbench.hub.download import FileProgress
from ggbench.hub.repo_records import RepoFile, RepoListing, RepoSummary, RepoVariant, VerifiedFile
from ggbench.models.catalog import CatalogModel, CatalogUpdate
from ggbench.models.disk import LocalModel
from ggbench.show.document import Document, Field, Get, Shape, field, many, of, sometimes
from ggbench.sizing.projectors import Encoder


def _provenance(is_twin: Get) -> tuple[Field, ...]:
    text = "A twin has the true shape, no trained weights."
    return field("provenance", Literal["file", "twin"], text, lambda root: "twin" if is_twin(root) else "file")


def files_field(paths: Get) -> tuple[Field, ...]:
    return field("files", list[str], "Paths, the shards in order.", paths)


def _kv(file: ModelFile) -> tuple[int | None, str | None]:
    """Return the KV bytes per token, or why they are unknown."""
    try:
        return file.kv_bytes_per_token(), None
    except Unsupported as error:
        return None, error.message


def _metadata(file: ModelFile) -> dict[str, object]:
    return {
        key: {"array_length": int(value)} if isinstance(value, ArrayLength) else value
        for key, value in file.metadata.items()
    }


INSPECT = Document(
    "inspect",
    "inspect FILE",
    "The header of a GGUF.",
    of(ModelFile, "model=name"),
    field("quant", str | None, get=quant_label),
    files_field(lambda file: file.paths),
    _provenance(lambda file: file.is_twin),
    of(ModelFile, "file_bytes missing_bytes"),
    field("gguf_version", int, get=lambda file: file.version),
    of(ModelFile, "big_endian header_sha256 architecture n_params bpw weight_bytes active_weight_bytes"),
    field(
        "kv_bytes_per_token",
        int | None,
        "KV cache in f16 for one position over all layers, ignoring any window.",
        lambda file: _kv(file)[0],
    ),
    field("no_kv_reason", str | None, "Why it cannot be computed from the header.", lambda file: _kv(file)[1]),
    of(ModelFile, "n_layer n_embd n_head n_head_kv head_dim_k head_dim_v n_ff n_vocab n_ctx_train"),
    of(ModelFile, "n_expert n_expert_used sliding_window"),
    field("n_windowed_layers", int, get=lambda file: sum(state.window is not None for state in file.states)),
    field(
        "state_bytes",
        int | None,
        "State of layers whose state does not grow with the context.",
        lambda file: None if _kv(file)[1] else sum(state.state_bytes for state in file.states),
    ),
    field("n_tensors", int, get=lambda file: len(file.tensors)),
    field(
        "tensor_types",
        dict[str, int],
        "Number of tensors, by type.",
        lambda file: dict(Counter(tensor.type_name for tensor in file.tensors).most_common()),
    ),
    of(ModelFile, "unknown_types"),
    field("metadata", dict[str, object], 'Every key; a long array is `{"array_length": n}`.', _metadata),
    sometimes(field("encoders", list[Encoder], "Of a projector: what it reads images or audio with.")),
    sometimes(field("tensors", list[TensorInfo], "With --tensors.")),
)


CATALOG_MODEL = Shape(
    "CatalogModel",
    "A model of the catalog.",
    of(CatalogModel),
    field("n_params", int, get=lambda model: count_params(model.hyper)),
    field("twins", list[str], "Quants whose twins are on this disk."),
)
_LOCAL_MODEL = Shape(
    "LocalModel",
    "A model on this disk.",
    of(LocalModel, "store name"),
    field("model", str | None, "The MODEL argument; null without a file.", lambda model: model.model or None),
    of(LocalModel, "quant words=arguments"),
    files_field(lambda model: model.paths),
    _provenance(lambda model: model.is_twin),
    of(LocalModel, "file_bytes n_missing architecture n_ctx_train reason?"),
)
MODELS = Document(
    "models",
    "models",
    "The catalog, and the files on this disk.",
    field("rows", many(CATALOG_MODEL)),
    field("files", many(_LOCAL_MODEL)),
)
_REPO_FILE = Shape("RepoFile", "A file of a repo or a folder.", of(RepoFile, "path n_bytes sha256"))
MODELS_IN_FOLDER = Document(
    "models.folder",
    "models --dir DIR",
    "The models in and below a folder.",
    field("rows", many(_LOCAL_MODEL)),
)
VERIFIED = Document(
    "models.verify",
    "models --verify FILE",
    "A file compared with the SHA-256 in its name.",
    field("file", str, get=lambda verified: verified.path),
    of(VerifiedFile, "sha256_expected sha256_found matches"),
)
UPDATED = Document("models.update", "models --update FILE", "The installed catalog update.", of(CatalogUpdate))
REPO_VARIANT = Shape(
    "Variant",
    "One quant of a repo.",
    of(RepoVariant, "model=name quant file_bytes"),
    field("repo_files", many(_REPO_FILE), get=lambda variant: variant.files),
    of(RepoVariant, "missing"),
    field("files", list[str], "Paths on this disk, if it is complete."),
    field("here_bytes", int, "Bytes on this disk, including unfinished downloads."),
)
"""Made from a `RepoVariant`."""
REPO = Document(
    "models.repo",
    "models --repo ORG/NAME",
    "A repo of the Hub at one commit.",
    of(RepoListing, "repo revision commit listed_at? total_bytes n_other_files"),
    field("rows", many(REPO_VARIANT)),
    field("sidecars", many(_REPO_FILE)),
)
"""Made from a `RepoListing`."""
SEARCH = Document(
    "models.search",
    "models --search TEXT",
    "The results of a Hub search.",
    field("search", str),
    field("rows", list[RepoSummary]),
)

_PULLED_FILE = Shape(
    "PulledFile",
    "",
    field("path", str, get=lambda pulled: pulled[0]),
    of(RepoFile, "n_bytes sha256", lambda pulled: pulled[1].file),
    of(FileProgress, "outcome moved_bytes", lambda pulled: pulled[1]),
)
PULLED_QUANT = Shape(
    "Pulled",
    "A quant that was downloaded.",
    field("model", str, get=lambda found: found.repo),
    field("quant", str | None, get=lambda found: found.variant.quant),
    field("commit", str),
    field("file_bytes", int, get=lambda found: found.variant.file_bytes),
    field("files", many(_PULLED_FILE)),
)
"""Made from a `FoundVariant`, with the path and the `FileProgress` of each of its files."""
PULLED = Document("pull", "pull MODEL [QUANT...]", "The downloaded quants.", field("rows", many(PULLED_QUANT)))
TWIN = Shape(
    "Twin",
    "A twin that was written.",
    field("model", str),
    field("quant", str),
    field("file", str),
    field("provenance", Literal["twin"], get=lambda _: "twin"),
    of(ModelFile, "file_bytes n_params bpw"),
)
TWINS = Document("twin", "twin MODEL [QUANT...]", "The twins that were written.", field("rows", many(TWIN)))
