"""What a checkpoint of Transformers holds, and what each method makes of it, for `ggbench inspect`."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ggbench.engines.transformers.checkpoint import Checkpoint
from ggbench.engines.transformers.storage import Method
from ggbench.errors import GgbenchError
from ggbench.engines.transformers.models import FoundCheckpoint, planned_methods
from ggbench.show import UNKNOWN
from ggbench.show.terminal.model_file import metadata_text, shape_facts, types_table
from ggbench.show.terminal.tables import TWIN_CAPTION, Facts, facts_table, new_table, spaced
from ggbench.text import in_words, plain
from ggbench.units import format_bytes, format_count, format_number

_OWN_MARKS = ("ggbench_twin", "ggbench.twin")
"""Keys of the config that are ggbench's."""


def checkpoint_details(found: FoundCheckpoint, method: Method) -> RenderableType:
    """Return files, shape and tensor types as loaded by a method, the size under each other, and the config."""
    checkpoint = found.checkpoint
    file = found.header(method)
    heading = Text(f"{checkpoint.name}  {method.name}", style="bold")
    if checkpoint.is_twin:
        heading.append(f"\n{TWIN_CAPTION}", style="not bold yellow")
    if file.truncation:
        heading.append(f"\nincomplete: {file.truncation}, as of a download that stopped", style="bold red")
    config = [
        (plain(key), metadata_text(value))
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
    """Return every tensor as the method stores it, by Transformers' names and torch's order of sides."""
    rows = [
        [plain(each.name), " × ".join(map(str, each.shape)), each.dtype, format_bytes(each.n_bytes)]
        for each in checkpoint.listed_tensors(method)
    ]
    return new_table("Tensors", {"name": "left", "shape": "right", "type": "left", "size": "right"}, rows)


def _facts(found: FoundCheckpoint) -> Facts:
    checkpoint = found.checkpoint
    file = found.header(checkpoint.method)
    n_shards, unused = len(checkpoint.shards), checkpoint.unused()
    held = f"{format_count(n_shards)} safetensors, {format_bytes(file.file_bytes)}" if n_shards else "config.json alone"
    if not n_shards and found.file_bytes:
        held = f"{format_bytes(found.file_bytes)} of safetensors on the Hub, not read"
    return [
        ("path", "" if checkpoint.folder is None else plain(str(checkpoint.folder))),
        ("class", checkpoint.config.architecture),
        ("files", held),
        ("output", "tied to the embedding" if checkpoint.layout.is_tied else "a matrix of its own"),
        (
            "not loaded",
            f"{format_bytes(sum(each.n_bytes for each in unused))}: {in_words([each.name for each in unused[:4]])}"
            if unused
            else "",
        ),
        ("own code", in_words(list(checkpoint.config.code_files)) if checkpoint.config.code_files else ""),
        ("KV cache", f"{format_bytes(file.kv_bytes_per_token())} for each token at two bytes"),
    ]


def _methods_table(found: FoundCheckpoint) -> Table:
    rows = []
    for method in planned_methods(found):
        try:
            file = found.header(method)
            sizes = [format_number(file.bpw), format_bytes(file.weight_bytes), format_bytes(file.active_weight_bytes)]
            rows.append([method.name, *sizes, ""])
        except GgbenchError as error:
            rows.append([method.name, UNKNOWN, UNKNOWN, UNKNOWN, plain(error.message)])
    columns = {"quant": "left", "BPW": "right", "weights": "right", "read for each token": "right", "": "wrap"}
    return new_table("Loaded as", columns, rows)
