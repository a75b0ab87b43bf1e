"""What `models` and `inspect` print: the catalog, this disk, the Hub, and the header of a GGUF."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from ggbench.errors import Unsupported
from ggbench.gguf_file.layout import count_params
from ggbench.gguf_file.model_file import ModelFile, TensorInfo
from ggbench.gguf_file.parser import ArrayLength
from ggbench.gguf_file.quants import quant_label
from ggbench.hub.repo_records import RepoListing, RepoSummary, RepoVariant
from ggbench.models.catalog import CatalogModel
from ggbench.models.disk import LocalModel
from ggbench.record import Record
from ggbench.show.answer import Answer, Facts, Part, Table
from ggbench.show.figure import Figure, member
from ggbench.show.words import say
from ggbench.sizing.projectors import is_projector, projector_of
from ggbench.text import shell_path, shorten
from ggbench.units import counted, format_bytes, format_count, format_params, format_percent

_VALUE_WIDTH = 72
_LIST_ENDS = 8
_FAMILY_WIDTH = 68
_ORIGINS = {"shipped": "", "user": "your models.toml"}


class CatalogRow(CatalogModel, frozen=True, kw_only=True):
    """A model of the catalog."""

    n_params: int


CATALOG = (
    member("id", "id"),
    member("title", "title", priority=4),
    member("n_params", "parameters", format_params),
    member("n_layer", "layers", path="hyper.n_layer", priority=2),
    member("n_ctx_train", "trained to", path="hyper.n_ctx_train", unit="tokens"),
    member("repo", "Hub repo", priority=1),
    Figure[CatalogRow]("origin", "from", lambda model: _ORIGINS[model.origin]),
)
LOCAL = (
    member("store", "store"),
    member("quant", "quant"),
    Figure[LocalModel]("is_draft", "", lambda model: "draft" if model.is_draft else ""),
    member("file_bytes", "size", format_bytes),
    member("architecture", "architecture", priority=3),
    member("n_ctx_train", "trained to", unit="tokens", priority=2),
    Figure[LocalModel]("name", "name", lambda model: model.name if _is_named_otherwise(model) else ""),
    Figure[LocalModel]("model", "MODEL", lambda model: shell_path(model.model) if model.paths else ""),
    member("reason", "problem"),
)


def _is_named_otherwise(model: LocalModel) -> bool:
    """Return whether its name, such as Ollama's, is not in the text to type."""
    return not model.paths or (model.is_named_by_path and model.name not in model.model)


def catalog_rows(catalog: Iterable[CatalogModel]) -> tuple[CatalogRow, ...]:
    return tuple(
        CatalogRow(**msgspec.structs.asdict(model), n_params=count_params(model.hyper)) for model in catalog
    )


def models_answer(catalog: Sequence[CatalogRow], found: Sequence[LocalModel]) -> Answer:
    """Return the models of this disk, and the current ones of the catalog, the newest first, in a line a family."""
    families: defaultdict[str, str] = defaultdict(str)
    for row in reversed(catalog):
        if not row.superseded_by:
            families[row.family.rstrip("0123456789.")] += f"{row.id} "
    text = say("models.here", models=_total(found), catalog=counted(len(catalog), "model"))
    current = Facts([(name, shorten(ids, _FAMILY_WIDTH)) for name, ids in sorted(families.items())])
    parts: list[Part] = [Table(LOCAL, found), current]
    return Answer(text, "ggbench pick", parts, [say("models.family")], [Table(CATALOG, catalog)])


def matching_answer(words: str, catalog: Sequence[CatalogRow], found: Sequence[LocalModel]) -> Answer:
    """Return the models of the catalog and of this disk that match words."""
    usable = [each.arguments for each in found if each.paths and not (each.reason or each.is_draft)]
    command = shlex.join(["ggbench", "models", "--search", words])
    if catalog:
        command = f"ggbench pick {catalog[0].id}"
    if usable:
        command = f"ggbench bench {' '.join(map(shell_path, usable[0]))}"
    text = say("models.matching", words=words, models=_total(found), catalog=counted(len(catalog), "model"))
    return Answer(text, command, [Table(CATALOG, catalog), Table(LOCAL, found)])


def folder_answer(folder: Path, found: Sequence[LocalModel]) -> Answer:
    if not found:
        return Answer(say("models.empty_folder", folder=str(folder)))
    text = say("models.folder", models=_total(found), folder=str(folder))
    has_usable = any(not (each.reason or each.is_draft) for each in found)
    return Answer(text, f"ggbench pick {shell_path(str(folder))}" if has_usable else "", [Table(LOCAL, found)])


def _total(models: Sequence[LocalModel]) -> str:
    """Return `3 models (12.1 GiB)`; `none`."""
    files = [each.file_bytes or 0 for each in models if each.paths and not each.is_draft]
    return f"{counted(len(files), 'model')} ({format_bytes(sum(files))})" if files else "none"


class VariantRow(Record):
    variant: RepoVariant
    files: tuple[Path, ...]
    """Paths on this disk, if it is complete."""
    here_bytes: int
    """Bytes on this disk, including unfinished downloads."""

    @property
    def here(self) -> float | None:
        """The share of the bytes that is here; None if nothing is."""
        if self.files:
            return 1.0
        return min(0.99, self.here_bytes / self.variant.file_bytes) if self.here_bytes else None


VARIANTS = (
    member("quant", "quant", path="variant.quant"),
    member("file_bytes", "size", format_bytes, path="variant.file_bytes"),
    Figure[VariantRow]("role", "", lambda row: row.variant.role, lambda role: "" if role == "model" else role),
    member("here", "here", format_percent, priority=1),
    member("model", "name", path="variant.name", priority=3),
    Figure[VariantRow]("missing", "missing", lambda row: ", ".join(row.variant.missing)),
)
REPOS = (
    member("repo", "repo"),
    member("downloads", "downloads in 30 days", priority=1),
    member("last_modified", "changed", lambda text: text[:10], priority=2),
    member("gated", "gated", priority=1),
)


def repo_answer(listing: RepoListing, rows: Sequence[VariantRow], name: str) -> Answer:
    """Return the quants of a repo; `name` is its MODEL argument."""
    text = say(
        "models.repo",
        repo=listing.repo,
        quants=counted(len(listing.models), "quant"),
        size=format_bytes(listing.total_bytes),
        n_here=sum(bool(row.files) for row in rows),
    )
    facts = [
        ("revision", listing.revision),
        ("commit", listing.commit),
        ("listed", listing.listed_at),
        ("sidecars", ", ".join(f"{file.name} ({format_bytes(file.n_bytes)})" for file in listing.sidecars)),
    ]
    drafts = [each for each in listing.variants if each.role == "draft"]
    notes = [say("models.drafts", command=_speculate(name, listing, drafts[0]))] if drafts else []
    return Answer(text, shlex.join(["ggbench", "plan", name]), [Table(VARIANTS, rows)], notes, [Facts(facts)])


def _speculate(name: str, listing: RepoListing, draft: RepoVariant) -> str:
    quant = next((each.quant for each in listing.models if each.quant), "QUANT")
    return shlex.join(["ggbench", "speculate", name, quant, "--draft", f"{name}:{draft.name}"])


def search_answer(words: str, found: Sequence[RepoSummary]) -> Answer:
    if not found:
        return Answer(say("models.not_found", words=words))
    text = say("models.found", repos=counted(len(found), "repo"), words=words)
    return Answer(text, shlex.join(["ggbench", "models", found[0].repo]), [Table(REPOS, found)])


class _TypeRow(Record):
    """The tensors of one type."""

    type: str
    n_tensors: int
    n_params: int
    n_bytes: int | None
    """None if the type is unknown."""

    @property
    def bpw(self) -> float | None:
        return self.n_bytes * 8 / self.n_params if self.n_bytes and self.n_params else None


_TYPES = (
    member("type", "type"),
    member("n_tensors", "tensors"),
    member("n_params", "parameters", format_params),
    member("n_bytes", "size", format_bytes),
    member("bpw", "BPW"),
)
_TENSORS = (
    member("name", "tensor"),
    Figure[TensorInfo]("shape", "shape", lambda tensor: " × ".join(map(str, tensor.shape))),
    member("type_name", "type"),
    member("n_bytes", "size", format_bytes),
)


def quant_of(file: ModelFile) -> str | None:
    return quant_label(file.paths[0].absolute() if file.paths else file.name, file.metadata)


def _kv_bytes_per_token(file: ModelFile) -> int | None:
    try:
        return file.kv_bytes_per_token()
    except Unsupported:
        return None


def _state_bytes(file: ModelFile) -> int | None:
    return None if file.no_kv_reason else sum(state.state_bytes for state in file.states) or None


HEADER = (
    Figure[ModelFile]("quant", "quant", quant_of, meaning="The quant by the file's header or its name."),
    member("n_params", "parameters", format_params),
    member("weight_bytes", "weights", format_bytes, meaning="Bytes of all tensors."),
    member(
        "active_weight_bytes",
        "read a token",
        format_bytes,
        meaning="Bytes read by one token: without embedding tables, draft layers and unused experts.",
    ),
    member("bpw", "BPW", meaning="Bits per weight: tensor bytes x 8 / parameters."),
    Figure[ModelFile](
        "kv_bytes_per_token",
        "KV a token",
        _kv_bytes_per_token,
        format_bytes,
        meaning="KV cache in f16 for one position over all layers, ignoring any window.",
    ),
    Figure[ModelFile](
        "state_bytes",
        "state",
        _state_bytes,
        format_bytes,
        meaning="State of layers whose state does not grow with the context, for each sequence.",
    ),
)
_SHAPE = (
    member("n_layer", "layers"),
    Figure[ModelFile]("n_expert", "experts", lambda file: file.n_expert or None),
    Figure[ModelFile]("n_expert_used", "used a token", lambda file: file.n_expert_used or None),
    member("sliding_window", "window"),
)


def header_answer(file: ModelFile, typed: str) -> Answer:
    """Return what a GGUF holds; `typed` is its path."""
    notes = [say("run.twin")] if file.is_twin else []
    if file.unknown_types:
        notes.append(say("inspect.unknown_types", types=", ".join(file.unknown_types)))
    types = Table(_TYPES, _type_rows(file))
    if is_projector(file):
        return _projector_answer(file, notes, types)
    named = {"name": file.name, "architecture": file.architecture, "size": format_params(file.n_params)}
    if file.truncation:
        text, command = say("inspect.truncated", name=file.name, missing=file.truncation), ""
    else:
        quant = quant_of(file) or "an unknown quant"
        text = say("inspect.file", quant=quant, longest=file.n_ctx_train, **named)
        command = shlex.join(["ggbench", "plan", typed])
    if file.no_kv_reason:
        notes.append(say("inspect.no_kv", reason=file.no_kv_reason))
    return Answer(text, command, [Table((*HEADER[2:], *_SHAPE), [file]), types], notes, _behind(file))


def _projector_answer(file: ModelFile, notes: Sequence[str], types: Table[_TypeRow]) -> Answer:
    named = (file.metadata.get(f"general.{key}") for key in ("base_model.0.name", "basename", "name"))
    text = say(
        "inspect.projector", name=file.name, model=shorten(str(next(filter(None, named), "?")), _VALUE_WIDTH)
    )
    if not file.unknown_types:
        compute = projector_of(file, file.name).compute_bytes
        size = say(
            "inspect.projector_size", weights=format_bytes(file.weight_bytes), compute=format_bytes(compute)
        )
        notes = [*notes, size]
    return Answer(text, "", [types], [*notes, say("inspect.projector_use")], _behind(file))


def _behind(file: ModelFile) -> list[Part]:
    header = [*(("path", str(path)) for path in file.paths), ("sha256 of the header", file.header_sha256)]
    metadata = [(key, metadata_text(value)) for key, value in file.metadata.items()]
    return [Facts(header, "Header"), Facts(metadata, "Metadata"), Table(_TENSORS, file.tensors)]


def _type_rows(file: ModelFile) -> list[_TypeRow]:
    groups: defaultdict[str, list[TensorInfo]] = defaultdict(list)
    for tensor in file.tensors:
        groups[tensor.type_name].append(tensor)
    rows = []
    for name, group in groups.items():
        n_bytes = sum(tensor.n_bytes or 0 for tensor in group)
        rows.append(_TypeRow(name, len(group), sum(tensor.n_elements for tensor in group), n_bytes or None))
    return sorted(rows, key=lambda row: (-(row.n_bytes or 0), row.type))


def metadata_text(value: object) -> str:
    if isinstance(value, ArrayLength):
        return f"array of {format_count(value)}"
    if isinstance(value, list | tuple):
        shown = ", ".join(shorten(str(entry), _VALUE_WIDTH) for entry in value[:_LIST_ENDS])
        rest = f", … {format_count(len(value))} in all" if len(value) > _LIST_ENDS else ""
        return f"[{shorten(shown, _VALUE_WIDTH)}{rest}]"
    return shorten(str(value), _VALUE_WIDTH) or '""'
