"""`ggbench inspect`: contents of a GGUF file, of a folder of them or of a checkpoint, from headers alone."""

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
    ggbench inspect ~/models
    """,
)
@click.argument("path", type=PATH, metavar="FILE|FOLDER")
@option("--tensors", "List every tensor of a file with its shape, type and bytes.", is_flag=True)
@output_options
def command(path: Path, tensors: bool, output: Output) -> None:
    """Show metadata, tensor types, parameters, BPW and KV bytes per token of FILE; the weights are not read.

    A truncated file, such as a download that stopped, is shown with how much is missing, and the exit code is 5. Of a
    FOLDER, every GGUF in and below it is listed; one that cannot be loaded is a row with its reason. A folder with a
    config.json and no GGUF is a checkpoint of Transformers, as are transformers:org/name and transformers-twin:ID, with
    or without :QUANT: the size that each method makes of it is shown.
    """
    from ggbench.gguf_file.header import read_model_file

    own = _engines_own(path)
    if own is not None:
        load_plugin("ggbench.engines", own.engine, "show", "engine").inspect(own, tensors=tensors, output=output)
        return
    if not os.path.lexists(path):
        _refuse_name(str(path))
    elif path.is_dir():
        _list_folder(path, tensors, output)
        return
    model_file = read_model_file(path, allow_missing_data=True)
    if output.as_json:
        from ggbench.show.model_documents import INSPECT

        output.document(INSPECT, model_file, **({"tensors": model_file.tensors} if tensors else {}))
    else:
        from ggbench.show.models import header_details, tensors_table

        output.show(header_details(model_file), *([tensors_table(model_file)] if tensors else []))
    if model_file.truncation:
        raise BadFile(f"{sanitize(path.name)} is truncated: {model_file.truncation}", "download it again")


def _engines_own(path: Path) -> ModelRef | None:
    """Return the model of an engine's own that a folder or MODEL means; None for anything else. Raises UsageError."""
    from ggbench.models.engine_models import engine_models, engine_of_scheme, own_models
    from ggbench.models.reference import parse_model

    if os.path.lexists(path) and path.is_dir():
        return next((ref for name, _ in own_models() if (ref := engine_models(name).in_folder(path))), None)
    is_named = not os.path.lexists(path) and engine_of_scheme(str(path).partition(":")[0].lower())
    return parse_model(str(path)) if is_named else None


def _list_folder(folder: Path, tensors: bool, output: Output) -> None:
    from ggbench.models.local_files import read_folder

    if tensors:
        raise UsageError("--tensors goes with a file", f"name one in {sanitize(str(folder))}")
    entries = tuple(read_folder(folder))
    if output.as_json:
        from ggbench.show.model_documents import FOLDER

        output.document(FOLDER, rows=entries)
    else:
        from ggbench.show.models import folder_table

        output.show(folder_table(entries, width=output.console().width))


def _refuse_name(text: str) -> None:
    """Raise UsageError where the other commands would take this for a MODEL that is not on this disk."""
    from ggbench.models.catalog import load_catalog
    from ggbench.models.reference import parse_model

    try:
        ref = parse_model(text).require_gguf()
    except UsageError:
        return
    if ref.kind == "path" or (ref.kind == "catalog" and all(each.id != ref.name for each in load_catalog())):
        return
    name = sanitize(text)
    raise UsageError(
        f"{name} names a model, and inspect reads a file",
        f"ggbench plan {name} shows what it needs; ggbench models lists the files on this disk",
    )
