"""`ggbench inspect`: the contents of a GGUF file or a checkpoint, from the headers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.options import PATH, option, output_options
from ggbench.commands.output import Output
from ggbench.errors import BadFile, UsageError
from ggbench.plugins import load_plugin
from ggbench.text import sanitize

if TYPE_CHECKING:
    from ggbench.models.reference import ModelRef


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench inspect model.gguf --tensors
    ggbench inspect transformers:org/name
    """,
)
@click.argument("path", type=PATH, metavar="FILE|CHECKPOINT")
@option("--tensors", "List every tensor of a file with its shape, type and bytes.", is_flag=True)
@output_options
def command(path: Path, tensors: bool, output: Output) -> None:
    """Show metadata, tensor types, parameters, BPW and KV bytes per token of FILE; the weights are not read.

    Of a projector (mmproj), it shows encoders, image size and the model it belongs to.

    For a truncated file, such as an interrupted download, the missing size is shown, and the exit code is 5. For a
    Transformers checkpoint (a folder with config.json and no GGUF, transformers:org/name or transformers-twin:ID, with
    or without :QUANT), the size with each quantization method is shown. ggbench models --dir lists a folder's files.
    """
    from ggbench.gguf_file.header import read_model_file
    from ggbench.models.local_files import reject_checkpoint
    from ggbench.models.reference import engine_models, own_models

    own: ModelRef | None = None
    if not os.path.lexists(path):
        own = _named_model(str(path))
    elif path.is_dir():
        own = next((ref for name, _ in own_models() if (ref := engine_models(name).in_folder(path))), None)
    if own is not None:
        load_plugin("ggbench.engines", own.engine, "show", "engine").inspect(own, tensors=tensors, output=output)
        return
    reject_checkpoint(path)
    if os.path.lexists(path) and path.is_dir():
        name = sanitize(str(path))
        raise UsageError(f"{name} is a folder", f"name one of its files; ggbench models --dir {name} lists them")
    model_file = read_model_file(path, allow_missing_data=True)
    if output.as_json:
        from ggbench.show.model_documents import INSPECT
        from ggbench.sizing.projectors import encoders, is_projector

        more: dict[str, object] = {"tensors": model_file.tensors} if tensors else {}
        if is_projector(model_file):
            more["encoders"] = encoders(model_file)
        output.document(INSPECT, model_file, **more)
    else:
        from ggbench.show.models import header_details, tensors_table

        output.show(header_details(model_file), *([tensors_table(model_file)] if tensors else []))
    if model_file.truncation:
        raise BadFile(f"{sanitize(path.name)} is truncated: {model_file.truncation}", "download it again")


def _named_model(text: str) -> ModelRef | None:
    """Return the named model in an engine's own format; None for a path. Raises UsageError for another MODEL."""
    from ggbench.models.catalog import load_catalog
    from ggbench.models.reference import engine_of_scheme, parse_model

    if engine_of_scheme(text.partition(":")[0].lower()):
        return parse_model(text)
    try:
        ref = parse_model(text)
    except UsageError:
        return None
    is_path = ref.kind == "path" or (ref.kind == "catalog" and all(each.id != ref.name for each in load_catalog()))
    if is_path or ref.is_server:
        return None
    name = sanitize(text)
    raise UsageError(
        f"{name} is a MODEL, but inspect reads files",
        f"for its memory, see: ggbench plan {name}; for the files on this disk: ggbench models",
    )
