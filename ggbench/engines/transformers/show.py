"""Contents of a Transformers checkpoint, and its size under each method, for `ggbench inspect`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ggbench.commands.output import Output
from ggbench.engines.transformers.checkpoint import Checkpoint
from ggbench.engines.transformers.config_json import Config
from ggbench.engines.transformers.models import FoundCheckpoint, find_checkpoint, planned_methods, wanted_methods
from ggbench.engines.transformers.storage import Method, Stored
from ggbench.errors import BadFile, GgbenchError
from ggbench.gguf_file.model_file import ModelFile
from ggbench.models.reference import ModelRef
from ggbench.show import UNKNOWN
from ggbench.show.document import Document, Shape, field, many, of, sometimes, within
from ggbench.show.model_documents import INSPECT, files_field
from ggbench.show.models import metadata_text, shape_facts, types_table
from ggbench.show.tables import TWIN_CAPTION, Facts, facts_table, new_table, spaced
from ggbench.text import in_words, sanitize
from ggbench.units import format_bytes, format_count, format_number

_OWN_MARKS = ("ggbench_twin", "ggbench.twin")


def inspect(ref: ModelRef, *, tensors: bool, output: Output) -> None:
    """Show the checkpoint as loaded by the method in MODEL, by default as stored. Raises GgbenchError."""
    found = find_checkpoint(ref)
    method = next(iter(wanted_methods(found, ref)), found.checkpoint.method)
    if output.as_json:
        given = {"tensors": found.checkpoint.listed_tensors(method)} if tensors else {}
        output.document(CHECKPOINT, LoadedCheckpoint(found, method, found.header(method)), **given)
    else:
        listed = [stored_tensors_table(found.checkpoint, method)] if tensors else []
        output.show(checkpoint_details(found, method), *listed)
    if missing := found.header(found.checkpoint.method).truncation:
        raise BadFile(f"{found.checkpoint.name} is incomplete: {missing}", "download the checkpoint again")


def checkpoint_details(found: FoundCheckpoint, method: Method) -> RenderableType:
    checkpoint = found.checkpoint
    file = found.header(method)
    heading = Text(f"{checkpoint.name}  {method.name}", style="bold")
    if checkpoint.is_twin:
        heading.append(f"\n{TWIN_CAPTION}", style="not bold yellow")
    if file.truncation:
        heading.append(f"\nincomplete: {file.truncation}", style="bold red")
    config = [
        (sanitize(key), metadata_text(value))
        for key, value in checkpoint.config.values.items()
        if key not in _OWN_MARKS and value is not None
    ]
    return spaced(
        [
            heading,
            facts_table("Checkpoint", _facts(found)),
            facts_table("Shape", shape_facts(file)),
            types_table(file),
            _methods_table(found),
            facts_table("Config", config),
        ]
    )


def stored_tensors_table(checkpoint: Checkpoint, method: Method) -> Table:
    """Return every tensor as stored by the method, with Transformers' names and torch's order of dimensions."""
    rows = [
        [sanitize(each.name), " × ".join(map(str, each.shape)), each.dtype, format_bytes(each.n_bytes)]
        for each in checkpoint.listed_tensors(method)
    ]
    return new_table("Tensors", {"name": "left", "shape": "right", "type": "left", "size": "right"}, rows)


def _facts(found: FoundCheckpoint) -> Facts:
    checkpoint = found.checkpoint
    file = found.header(checkpoint.method)
    n_shards = len(checkpoint.shards)
    held = f"{format_count(n_shards)} safetensors, {format_bytes(file.file_bytes)}" if n_shards else "config.json alone"
    if not n_shards and found.file_bytes:
        held = f"{format_bytes(found.file_bytes)} of safetensors on the Hub, not read"
    return [
        ("path", "" if checkpoint.folder is None else sanitize(str(checkpoint.folder))),
        ("class", checkpoint.config.architecture),
        ("files", held),
        ("output", "tied to the embedding" if checkpoint.layout.is_tied else "a separate matrix"),
        ("not loaded", checkpoint.unused_in_words()),
        ("own code", in_words(list(checkpoint.config.code_files)) if checkpoint.config.code_files else ""),
        ("KV cache", f"{format_bytes(file.kv_bytes_per_token())} for each token at two bytes"),
    ]


def _methods_table(found: FoundCheckpoint) -> Table:
    rows = []
    for _, method, file, reason in LoadedCheckpoint.by_methods(found):
        sizes = [UNKNOWN] * 3
        if file is not None:
            sizes = [format_number(file.bpw), format_bytes(file.weight_bytes), format_bytes(file.active_weight_bytes)]
        rows.append([method.name, *sizes, sanitize(reason or "")])
    columns = {"quant": "left", "BPW": "right", "weights": "right", "read for each token": "right", "": "wrap"}
    return new_table("Loaded as", columns, rows)


class LoadedCheckpoint(NamedTuple):
    found: FoundCheckpoint
    method: Method
    file: ModelFile | None
    """None if it cannot be computed; a reason is then given."""
    reason: str | None = None

    @classmethod
    def by_methods(cls, found: FoundCheckpoint) -> Iterator[LoadedCheckpoint]:
        for method in planned_methods(found):
            try:
                yield cls(found, method, found.header(method))
            except GgbenchError as error:
                yield cls(found, method, None, error.message)


_METHOD = Shape(
    "Method",
    "A checkpoint as loaded by one method.",
    field("quant", str, get=lambda loaded: loaded.method.name),
    of(ModelFile, "bpw weight_bytes active_weight_bytes", lambda loaded: loaded.file, maybe=True),
    field("reason", str | None, "Why it cannot be computed; null if it can."),
)
_STORED = Shape("Stored", "A stored tensor.", of(Stored, "name shape type_name=dtype n_bytes"))
CHECKPOINT = Document(
    "inspect.checkpoint",
    "inspect transformers:FOLDER",
    "The contents of a Transformers checkpoint.",
    within(lambda loaded: loaded.file, INSPECT.without("gguf_version", "big_endian", "tensors")),
    field("model", str, get=lambda loaded: loaded.found.checkpoint.name),
    field("quant", str, get=lambda loaded: loaded.method.name),
    of(FoundCheckpoint, "provenance=origin", lambda loaded: loaded.found),
    files_field(lambda loaded: [shard.path for shard in loaded.found.checkpoint.shards]),
    of(Config, "transformers_class=architecture", lambda loaded: loaded.found.checkpoint.config),
    field("tied_embeddings", bool, get=lambda loaded: loaded.found.checkpoint.layout.is_tied),
    of(Config, "code_files", lambda loaded: loaded.found.checkpoint.config),
    field(
        "unused_bytes",
        int,
        "Bytes in its files that are not loaded.",
        lambda loaded: sum(tensor.n_bytes for tensor in loaded.found.checkpoint.unused()),
    ),
    field("methods", many(_METHOD), get=lambda loaded: LoadedCheckpoint.by_methods(loaded.found)),
    sometimes(field("tensors", many(_STORED), "With --tensors.")),
)
