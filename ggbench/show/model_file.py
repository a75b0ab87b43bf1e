"""What a GGUF's header says, for `ggbench inspect`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ggbench.errors import Unsupported
from ggbench.gguf_file.model_file import ModelFile, TensorInfo
from ggbench.gguf_file.parser import ArrayLength
from ggbench.gguf_file.quants import quant_label
from ggbench.models.local_files import FolderEntry
from ggbench.show import UNKNOWN
from ggbench.show.tables import (
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
from ggbench.text import plain, shorten
from ggbench.units import format_bytes, format_count, format_number, format_params, format_percent

_VALUE_WIDTH = 72
"""Characters of a metadata value; a chat template has thousands."""
_LIST_ENDS = 8


def header_details(model_file: ModelFile) -> RenderableType:
    """Shape, memory, tensor types and metadata; the tensors themselves are `tensors_table`'s."""
    heading = Text(f"{plain(model_file.name)}  {plain(quant_label(model_file))}", style="bold")
    if model_file.is_twin:
        heading.append(f"\n{TWIN_CAPTION}", style="not bold yellow")
    if model_file.truncation:
        heading.append(
            f"\ntruncated: {model_file.truncation}, as of a download that stopped; it cannot be loaded, and what "
            "follows is from its header, which is whole",
            style="bold red",
        )
    if model_file.unknown_types:
        names = ", ".join(map(plain, model_file.unknown_types))
        heading.append(
            f"\ntensor types unknown to this ggbench: {names}; so size in memory and BPW are too", style="yellow"
        )
    parts = (
        heading,
        facts_table("File", _file(model_file)),
        facts_table("Shape", shape_facts(model_file)),
        facts_table("Memory", _memory(model_file)),
        types_table(model_file),
        facts_table("Metadata", [(plain(key), metadata_text(value)) for key, value in model_file.metadata.items()]),
    )
    return spaced(parts)


def folder_table(entries: Sequence[FolderEntry], *, width: int | None = None) -> Table:
    """Every GGUF of a folder, with what is wrong with it."""
    files, variants = [each.file for each in entries], [each.variant for each in entries]
    shards = [len(each.files) + each.n_missing for each in variants]
    return fitted_table(
        [
            names("name", (each.name for each in variants)),
            left("architecture", (file.architecture if file else UNKNOWN for file in files), priority=2),
            names("quant", (each.quant or UNKNOWN for each in entries)),
            right("BPW", (format_number(file.bpw if file else None) for file in files)),
            right("size", (format_bytes(each.file_bytes) for each in variants)),
            *([right("shards", map(format_count, shards), priority=1)] if max(shards) > 1 else []),
            notes(each.reason for each in entries),
        ],
        dim=[bool(each.reason) for each in entries],
        width=width,
        caption=TWIN_CAPTION if any(file and file.is_twin for file in files) else "",
    )


def tensors_table(model_file: ModelFile) -> Table:
    """Every tensor in the order of the file."""
    columns = {"name": "left", "shape": "right", "type": "left", "size": "right"}
    rows = [
        [plain(each.name), " × ".join(map(str, each.shape)), plain(each.type_name), format_bytes(each.n_bytes)]
        for each in model_file.tensors
    ]
    if len(model_file.paths) > 1:
        columns["shard"] = "right"
        for row, tensor in zip(rows, model_file.tensors, strict=True):
            row.append(str(tensor.shard + 1))
    return new_table("Tensors", columns, rows)


def _file(model_file: ModelFile) -> Facts:
    paths = [str(path) for path in model_file.paths]
    where = paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more shards" if paths else ""
    order = ", big endian" if model_file.big_endian else ""
    return [
        ("path", where),
        ("size", format_bytes(model_file.file_bytes)),
        ("format", f"GGUF version {model_file.version}{order}, {format_count(len(model_file.tensors))} tensors"),
        ("header", f"sha256 {model_file.header_sha256}"),
    ]


def shape_facts(model_file: ModelFile) -> Facts:
    """Parameters, layers, widths and heads."""
    experts = f"{model_file.n_expert}, {model_file.n_expert_used} used for each token" if model_file.n_expert else ""
    heads = f"{_range(model_file.n_head)} query, {_range(model_file.n_head_kv)} KV"
    dims = {model_file.head_dim_k, model_file.head_dim_v}
    width = f"{model_file.head_dim_k}" if len(dims) == 1 else f"K {model_file.head_dim_k}, V {model_file.head_dim_v}"
    return [
        ("architecture", model_file.architecture),
        ("parameters", f"{format_params(model_file.n_params)} ({format_count(model_file.n_params)})"),
        ("layers", format_count(model_file.n_layer)),
        ("width", f"{format_count(model_file.n_embd)}, feed-forward {_range(model_file.n_ff)}"),
        ("heads", f"{heads}, {width} wide"),
        ("experts", experts),
        ("vocabulary", "" if model_file.n_vocab is None else f"{format_count(model_file.n_vocab)} tokens"),
        ("trained to", "" if model_file.n_ctx_train is None else f"{format_count(model_file.n_ctx_train)} tokens"),
        ("window", _window(model_file)),
    ]


def _window(model_file: ModelFile) -> str:
    """`1,024 tokens in 40 of 48 layers`."""
    if model_file.sliding_window is None:
        return ""
    n_windowed = sum(state.window is not None for state in model_file.states)
    layers = f"{format_count(n_windowed)} of {format_count(model_file.n_layer)} layers"
    return f"{format_count(model_file.sliding_window)} tokens in {layers}"


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
    """Tensors, parameters and bytes of each type, the largest first."""
    groups: defaultdict[str, list[TensorInfo]] = defaultdict(list)
    for tensor in model_file.tensors:
        groups[tensor.type_name].append(tensor)
    known_bytes = sum(tensor.n_bytes or 0 for tensor in model_file.tensors)
    rows = []
    for name, tensors in sorted(groups.items(), key=lambda group: (-_bytes(group[1]), group[0])):
        n_params, n_bytes = sum(tensor.n_elements for tensor in tensors), _bytes(tensors)
        sizes = [UNKNOWN] * 3
        if known_bytes and n_params and all(tensor.n_bytes is not None for tensor in tensors):
            share, bpw = n_bytes / known_bytes, n_bytes * 8 / n_params
            sizes = [format_bytes(n_bytes), format_percent(share), format_number(bpw)]
        rows.append([f"  {plain(name)}", format_count(len(tensors)), format_params(n_params), *sizes])
    columns = {"  type": "left"} | dict.fromkeys(("tensors", "params", "size", "share", "BPW"), "right")
    return new_table("Tensor types", columns, rows)


def _bytes(tensors: Iterable[TensorInfo]) -> int:
    return sum(tensor.n_bytes or 0 for tensor in tensors)


def _range(values: tuple[int, ...]) -> str:
    """`16`, or `2 to 16` where layers differ."""
    if not values:
        return UNKNOWN
    low, high = min(values), max(values)
    return format_count(low) if low == high else f"{format_count(low)} to {format_count(high)}"


def metadata_text(value: object) -> str:
    """One line of a metadata value, cut where it is long."""
    if isinstance(value, ArrayLength):
        return f"array of {format_count(value)}"
    if isinstance(value, list | tuple):
        shown = ", ".join(shorten(str(entry), _VALUE_WIDTH) for entry in value[:_LIST_ENDS])
        rest = f", … {format_count(len(value))} in all" if len(value) > _LIST_ENDS else ""
        return f"[{shorten(shown, _VALUE_WIDTH)}{rest}]"
    return shorten(str(value), _VALUE_WIDTH) or '""'
