"""`ggbench inspect`: the contents of a GGUF file, from the header."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.options import PATH, option, output_options
from ggbench.commands.output import Output
from ggbench.errors import BadFile, UsageError
from ggbench.text import sanitize


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench inspect model.gguf --tensors
    """,
)
@click.argument("path", type=PATH, metavar="FILE")
@option("--tensors", "List every tensor of a file with its shape, type and bytes.", is_flag=True)
@output_options
def command(path: Path, tensors: bool, output: Output) -> None:
    """Show metadata, tensor types, parameters, BPW and KV bytes per token of FILE; the weights are not read.

    Of a projector (mmproj), it shows encoders, image size and the model it belongs to.

    For a truncated file, such as an interrupted download, the missing size is shown, and the exit code is 5. The models
    of a folder are listed by: ggbench models --dir FOLDER
    """
    from ggbench.gguf_file.header import read_model_file
    from ggbench.models.local_files import reject_checkpoint

    is_there = os.path.lexists(path)  # also answers for a name that no file can have
    if not is_there:
        _refuse_model(str(path))
    reject_checkpoint(path)
    if is_there and path.is_dir():
        hint = f"name one of its files; its models are listed by: ggbench models --dir {shlex.quote(str(path))}"
        raise UsageError(f"{sanitize(str(path))} is a folder", sanitize(hint))
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


def _refuse_model(text: str) -> None:
    """Raise UsageError for a MODEL that is not a path."""
    from ggbench.models.catalog import load_catalog
    from ggbench.models.reference import parse_model

    try:
        ref = parse_model(text)
    except UsageError:
        return
    is_path = ref.kind == "path" or (ref.kind == "catalog" and all(each.id != ref.name for each in load_catalog()))
    if is_path or ref.is_server:
        return
    name = sanitize(text)
    raise UsageError(
        f"{name} is a MODEL, but inspect reads files",
        f"for its memory, see: ggbench plan {name}; for the files on this disk: ggbench models",
    )
