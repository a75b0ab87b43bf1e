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
from ggbench.text import plain

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
    config.json and no GGUF is a checkpoint of Transformers, as are tf:org/name and synth-tf:ID, with or without :QUANT:
    the size that each method makes of it is shown.
    """
    from ggbench.gguf_file.header import read_model_file

    checkpoint = _checkpoint(path)
    if checkpoint is not None:
        _show_checkpoint(checkpoint, tensors, output)
        return
    if not os.path.lexists(path):
        _refuse_name(str(path))
    elif path.is_dir():
        _list_folder(path, tensors, output)
        return
    model_file = read_model_file(path, allow_missing_data=True)
    if output.as_json:
        from ggbench.show.model_documents import INSPECT

        output.print_document(INSPECT, model_file, **({"tensors": model_file.tensors} if tensors else {}))
    else:
        from ggbench.show.model_file import header_details, tensors_table

        output.show(header_details(model_file), *([tensors_table(model_file)] if tensors else []))
    if model_file.truncation:
        raise BadFile(f"{plain(path.name)} is truncated: {model_file.truncation}", "download it again")


def _checkpoint(path: Path) -> ModelRef | None:
    """Return the checkpoint that a folder or `tf:` means; None for anything else. Raises UsageError."""
    from ggbench.models.reference import ModelRef, parse_model

    if os.path.lexists(path):
        is_checkpoint = path.is_dir() and os.path.lexists(path / "config.json") and not any(path.glob("*.gguf"))
        return ModelRef("tf-folder", str(path)) if is_checkpoint else None
    text = str(path)
    ref = parse_model(text) if text.lower().startswith(("tf:", "synth-tf:")) else None
    return ref if ref is not None and ref.is_checkpoint else None


def _show_checkpoint(ref: ModelRef, tensors: bool, output: Output) -> None:
    """Show it as the method in MODEL would load it, else as it is stored. Raises GgbenchError."""
    from ggbench.models.checkpoints import find_checkpoint, wanted_methods

    found = find_checkpoint(ref)
    method = next(iter(wanted_methods(found, ref)), found.checkpoint.method)
    if output.as_json:
        from ggbench.show.model_documents import CHECKPOINT, LoadedCheckpoint

        given = {"tensors": found.checkpoint.listed_tensors(method)} if tensors else {}
        output.print_document(CHECKPOINT, LoadedCheckpoint.of(found, method), **given)
    else:
        from ggbench.show.model_file import checkpoint_details, stored_tensors_table

        listed = [stored_tensors_table(found.checkpoint, method)] if tensors else []
        output.show(checkpoint_details(found, method), *listed)
    if missing := found.header(found.checkpoint.method).truncation:
        raise BadFile(f"{found.checkpoint.name} is incomplete: {missing}", "download the checkpoint again")


def _list_folder(folder: Path, tensors: bool, output: Output) -> None:
    from ggbench.models.local_files import read_folder

    if tensors:
        raise UsageError("--tensors goes with a file", f"name one in {plain(str(folder))}")
    entries = tuple(read_folder(folder))
    if output.as_json:
        from ggbench.show.model_documents import FOLDER

        output.print_document(FOLDER, rows=entries)
    else:
        from ggbench.show.model_file import folder_table

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
    name = plain(text)
    raise UsageError(
        f"{name} names a model, and inspect reads a file",
        f"ggbench plan {name} shows what it needs; ggbench models lists the files on this disk",
    )
