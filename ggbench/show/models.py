"""Tables of unmeasured models: the catalog, this disk, the Hub, and the header of a GGUF."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ggbench.errors import Unsupported
from ggbench.gguf_file.layout import count_params
from ggbench.gguf_file.model_file import ModelFile, TensorInfo
from ggbench.gguf_file.parser import ArrayLength
from ggbench.gguf_file.quants import quant_label
from ggbench.show import UNKNOWN
from ggbench.show.tables import (
    GAP,
    TWIN_CAPTION,
    Facts,
    facts_table,
    fitted_table,
    left,
    names,
    new_table,
    notes,
    right,
    spaced,
)
from ggbench.sizing.projectors import encoders, is_projector, projector_of
from ggbench.text import sanitize, shell_path, shorten
from ggbench.units import counted, format_bytes, format_count, format_number, format_params, format_percent

if TYPE_CHECKING:
    from ggbench.hub.repo_records import RepoListing, RepoSummary, RepoVariant
    from ggbench.models.catalog import CatalogModel
    from ggbench.models.disk import LocalModel


def catalog_table(
    models: Iterable[CatalogModel], twins: Mapping[str, Sequence[str]], *, width: int | None = None
) -> Table:
    """Return the catalog as a table; `twins` has the quants with twins on this disk, by id."""
    models = tuple(models)
    return fitted_table(
        [
            names("id", (f"{model.id}{_ORIGINS[model.origin]}" for model in models)),
            names("title", (model.title for model in models), 4),
            right("parameters", (format_params(count_params(model.hyper)) for model in models)),
            right("layers", (format_count(model.hyper.n_layer) for model in models), priority=2),
            right("trained to", (format_count(model.hyper.n_ctx_train) for model in models), "tokens"),
            names("Hub repo", (model.repo or UNKNOWN for model in models), 1),
            left("twins here", (" ".join(twins.get(model.id, ())) for model in models), priority=3),
        ],
        width=width,
        caption="" if {model.origin for model in models} <= {"shipped"} else _ORIGINS_CAPTION,
    )


_ORIGINS = {"shipped": "", "updated": "+", "user": "*"}
_ORIGINS_CAPTION = "+: from models --update; *: from your own models.toml"


def local_models_listing(models: Sequence[LocalModel]) -> Text:
    """Return store, quant, size, architecture, training context, and MODEL quoted for a shell, as one text.

    rich is too slow for hundreds of lines, and a path wrapped in a column cannot be copied.
    """
    columns = [
        _padded("store", [model.store for model in models]),
        _padded("quant", [model.quant or UNKNOWN for model in models]),
        _padded("size", [format_bytes(model.file_bytes) for model in models], right_aligned=True),
        _padded("architecture", [model.architecture or UNKNOWN for model in models]),
        _padded("trained to", [format_count(model.n_ctx_train) for model in models], right_aligned=True),
    ]
    first, *lines = map((" " * GAP).join, zip(*columns, ["model", *map(_model_text, models)], strict=True))
    text = Text.assemble((f"{first}\n", "bold"), "─" * cell_len(first))
    text.append("".join(f"\n{line}" for line in lines))
    return text.append(f"\n{TWIN_CAPTION}") if any(model.is_twin for model in models) else text


def _padded(header: str, texts: Sequence[str], *, right_aligned: bool = False) -> list[str]:
    widest = max(map(cell_len, (header, *texts)))
    pairs = [(text, " " * (widest - cell_len(text))) for text in (header, *texts)]
    return [f"{blank}{text}" if right_aligned else f"{text}{blank}" for text, blank in pairs]


def local_models_total(models: Sequence[LocalModel]) -> str:
    n_files = sum(bool(model.paths) for model in models)
    return f"{counted(n_files, 'model')}, {format_bytes(sum(model.file_bytes or 0 for model in models))}"


def _model_text(model: LocalModel) -> str:
    """Return the text to type, after a name that is not in the path, such as Ollama's, and before any problem."""
    typed = sanitize(shell_path(model.model)) if model.paths else ""
    has_name = typed and (not model.is_named_by_path or model.name in typed)
    shown = typed if has_name else f"{sanitize(model.name)}  {typed}".rstrip()
    return f"{shown}  ({sanitize(model.reason)})" if model.reason else shown


def repo_report(
    listing: RepoListing, here: Mapping[str, Sequence[Path]], here_bytes: Mapping[str, int], *, width: int
) -> RenderableType:
    """Return the repo's facts and variants; `here` has those complete on this disk, `here_bytes` the bytes of each."""
    variants = listing.variants
    at = "" if listing.revision == listing.commit else f" ({listing.revision})"
    sidecars = (f"{file.name} ({format_bytes(file.n_bytes)})" for file in listing.sidecars)
    facts = [
        ("commit", f"{listing.commit}{at}"),
        ("listed", listing.listed_at),
        ("in all", f"{format_bytes(listing.total_bytes)} in {counted(len(variants), 'variant')}"),
        ("sidecars", ", ".join(sidecars)),
        ("other files", format_count(listing.n_other_files)),
    ]
    table = fitted_table(
        [
            names("quant", (each.quant or UNKNOWN for each in variants)),
            right("size", (format_bytes(each.file_bytes) for each in variants)),
            right("files", (format_count(len(each.files)) for each in variants), priority=2),
            left("here", (_here_text(each, here, here_bytes) for each in variants), priority=1),
            names("name", (each.name for each in variants), 3),
            notes(map(_missing_text, variants)),
        ],
        labels=[sanitize(each.quant or each.name) for each in variants],
        width=width,
    )
    return spaced([facts_table(listing.repo, facts), table])


def _here_text(variant: RepoVariant, here: Mapping[str, Sequence[Path]], here_bytes: Mapping[str, int]) -> str:
    if variant.name in here:
        return "yes"
    n_bytes = here_bytes.get(variant.name, 0)
    return format_percent(min(0.99, n_bytes / variant.file_bytes)) if n_bytes else ""


def _missing_text(variant: RepoVariant) -> str:
    return f"missing: {', '.join(variant.missing)}" if variant.missing else ""


def search_table(found: Iterable[RepoSummary], *, width: int) -> Table:
    found = tuple(found)
    return fitted_table(
        [
            names("repo", (each.repo for each in found)),
            right("downloads", (format_count(each.downloads) for each in found), "30 days", 1),
            right("likes", (format_count(each.likes) for each in found), priority=3),
            left("changed", ((each.last_modified or UNKNOWN)[:10] for each in found), priority=2),
            left("gated", ("yes" if each.gated else "" for each in found), priority=1),
        ],
        dim=[each.gated for each in found],
        width=width,
    )


_VALUE_WIDTH = 72
_LIST_ENDS = 8


def header_details(model_file: ModelFile) -> RenderableType:
    """Return shape, memory, tensor types and metadata."""
    heading = Text(f"{sanitize(model_file.name)}  {sanitize(quant_label(model_file))}", style="bold")
    if model_file.is_twin:
        heading.append(f"\n{TWIN_CAPTION}", style="not bold yellow")
    if model_file.truncation:
        text = f"\ntruncated: {model_file.truncation}; it cannot be loaded, but its header below is complete"
        heading.append(text, style="bold red")
    if model_file.unknown_types:
        types = ", ".join(map(sanitize, model_file.unknown_types))
        text = f"\nunknown tensor types: {types}; size in memory and BPW are therefore unknown"
        heading.append(text, style="yellow")
    metadata = [(sanitize(key), metadata_text(value)) for key, value in model_file.metadata.items()]
    parts = [
        facts_table("File", _file(model_file)),
        *(
            [facts_table("Projector", _projector_facts(model_file))]
            if is_projector(model_file)
            else [facts_table("Shape", shape_facts(model_file)), facts_table("Memory", _memory(model_file))]
        ),
        types_table(model_file),
        facts_table("Metadata", metadata),
    ]
    return spaced([heading, *parts])


def tensors_table(model_file: ModelFile) -> Table:
    columns = {"name": "left", "shape": "right", "type": "left", "size": "right"}
    if len(model_file.paths) > 1:
        columns["shard"] = "right"
    rows = []
    for each in model_file.tensors:
        shape, size = " × ".join(map(str, each.shape)), format_bytes(each.n_bytes)
        cells = [sanitize(each.name), shape, sanitize(each.type_name), size, str(each.shard + 1)]
        rows.append(cells[: len(columns)])
    return new_table("Tensors", columns, rows)


def _file(model_file: ModelFile) -> Facts:
    where = str(model_file.paths[0]) if model_file.paths else ""
    if len(model_file.paths) > 1:
        where += f" and {len(model_file.paths) - 1} more shards"
    order = ", big endian" if model_file.big_endian else ""
    return [
        ("path", where),
        ("size", format_bytes(model_file.file_bytes)),
        (
            "format",
            f"GGUF version {model_file.version}{order}, {format_count(len(model_file.tensors))} tensors",
        ),
        ("header", f"sha256 {model_file.header_sha256}"),
    ]


def shape_facts(model_file: ModelFile) -> Facts:
    experts = (
        f"{model_file.n_expert}, {model_file.n_expert_used} used for each token" if model_file.n_expert else ""
    )
    heads = f"{_range(model_file.n_head)} query, {_range(model_file.n_head_kv)} KV"
    dims = {model_file.head_dim_k, model_file.head_dim_v}
    width = (
        f"{model_file.head_dim_k}"
        if len(dims) == 1
        else f"K {model_file.head_dim_k}, V {model_file.head_dim_v}"
    )
    window = ""
    if model_file.sliding_window is not None:
        n_windowed = sum(state.window is not None for state in model_file.states)
        layers = f"{format_count(n_windowed)} of {format_count(model_file.n_layer)} layers"
        window = f"{format_count(model_file.sliding_window)} tokens in {layers}"
    return [
        ("architecture", model_file.architecture),
        ("parameters", f"{format_params(model_file.n_params)} ({format_count(model_file.n_params)})"),
        ("layers", format_count(model_file.n_layer)),
        ("width", f"{format_count(model_file.n_embd)}, feed-forward {_range(model_file.n_ff)}"),
        ("heads", f"{heads}, {width} wide"),
        ("experts", experts),
        ("vocabulary", "" if model_file.n_vocab is None else f"{format_count(model_file.n_vocab)} tokens"),
        (
            "trained to",
            "" if model_file.n_ctx_train is None else f"{format_count(model_file.n_ctx_train)} tokens",
        ),
        ("window", window),
    ]


def _projector_facts(model_file: ModelFile) -> Facts:
    """Return what a projector is, and the model that it belongs to, as far as the header says."""
    found: list[tuple[str, str]] = []
    for each in encoders(model_file):
        found.append((each.kind, f"type {sanitize(each.projector_type)}" if each.projector_type else ""))
        size = f"{format_count(each.image_size)} pixels a side, in patches of {format_count(each.patch_size)}"
        found.append(("images", "" if each.image_size is None else size))
        found.append(("shape", f"{format_count(each.n_layer)} layers {format_count(each.n_embd)} wide"))
        found.append(("for models", f"{format_count(each.projection_dim)} wide" if each.projection_dim else ""))
    named = (model_file.metadata.get(f"general.{key}") for key in ("base_model.0.name", "basename", "name"))
    compute_bytes = (
        None if model_file.unknown_types else projector_of(model_file, model_file.name).compute_bytes
    )
    return [
        *found,
        ("model", next((shorten(str(name), _VALUE_WIDTH) for name in named if name), "")),
        ("parameters", f"{format_params(model_file.n_params)} ({format_count(model_file.n_params)})"),
        ("BPW", format_number(model_file.bpw)),
        ("weights", format_bytes(model_file.weight_bytes)),
        (
            "compute",
            f"at most {format_bytes(compute_bytes)} for llama.cpp's warm-up image" if compute_bytes else "",
        ),
        ("use", "load it beside its model: llama-server --mmproj, ggbench plan MODEL --mmproj"),
    ]


def _memory(model_file: ModelFile) -> Facts:
    try:
        kv = f"{format_bytes(model_file.kv_bytes_per_token())} for each token at f16"
    except Unsupported as error:
        kv = f"unknown: {error.message}"
    active = model_file.active_weight_bytes
    state_bytes = 0 if model_file.no_kv_reason else sum(state.state_bytes for state in model_file.states)
    return [
        ("BPW", format_number(model_file.bpw)),
        ("weights", format_bytes(model_file.weight_bytes)),
        ("active", "" if active is None else f"{format_bytes(active)} read for each token"),
        ("KV cache", kv),
        ("state", f"{format_bytes(state_bytes)} for each sequence, at every length" if state_bytes else ""),
    ]


def types_table(model_file: ModelFile) -> Table:
    groups: defaultdict[str, list[TensorInfo]] = defaultdict(list)
    for tensor in model_file.tensors:
        groups[tensor.type_name].append(tensor)

    def known_bytes(tensors: Iterable[TensorInfo]) -> int:
        return sum(tensor.n_bytes or 0 for tensor in tensors)

    all_bytes, rows = known_bytes(model_file.tensors), []
    for name, tensors in sorted(groups.items(), key=lambda group: (-known_bytes(group[1]), group[0])):
        n_params, n_bytes = sum(tensor.n_elements for tensor in tensors), known_bytes(tensors)
        sizes = [UNKNOWN] * 3
        if all_bytes and n_params and all(tensor.n_bytes is not None for tensor in tensors):
            share, bpw = n_bytes / all_bytes, n_bytes * 8 / n_params
            sizes = [format_bytes(n_bytes), format_percent(share), format_number(bpw)]
        rows.append([f"  {sanitize(name)}", format_count(len(tensors)), format_params(n_params), *sizes])
    columns = {"  type": "left"} | dict.fromkeys(("tensors", "params", "size", "share", "BPW"), "right")
    return new_table("Tensor types", columns, rows)


def _range(values: tuple[int, ...]) -> str:
    if not values:
        return UNKNOWN
    low, high = min(values), max(values)
    return format_count(low) if low == high else f"{format_count(low)} to {format_count(high)}"


def metadata_text(value: object) -> str:
    if isinstance(value, ArrayLength):
        return f"array of {format_count(value)}"
    if isinstance(value, list | tuple):
        shown = ", ".join(shorten(str(entry), _VALUE_WIDTH) for entry in value[:_LIST_ENDS])
        rest = f", … {format_count(len(value))} in all" if len(value) > _LIST_ENDS else ""
        return f"[{shorten(shown, _VALUE_WIDTH)}{rest}]"
    return shorten(str(value), _VALUE_WIDTH) or '""'
