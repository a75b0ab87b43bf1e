"""`ggbench inspect`: contents of a GGUF file, from its header alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ggbench.cli.output import Output, output_options
from ggbench.plain import plain

if TYPE_CHECKING:
    from ggbench.gguf_file.model_file import ModelFile


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--tensors", is_flag=True, help="List every tensor with its shape, type and bytes.")
@output_options
def command(file: Path, tensors: bool, output: Output) -> None:
    """Show metadata, tensor types, parameters, BPW and KV bytes per token of FILE; the weights are not read.

    An incomplete download is shown as well, with how much is missing.
    """
    model_file = _read(file)
    if output.as_json:
        from ggbench.report.model_documents import model_file_document

        output.document("inspect", **model_file_document(model_file, tensors=tensors))
        return
    from ggbench.report.terminal.model_file import header_details, tensors_table

    output.show(header_details(model_file))
    if tensors:
        output.show(tensors_table(model_file))


def _read(file: Path) -> ModelFile:
    """The model, also of a file that lacks tensors.

    Raises UsageError for a model's name that is no file, and as `read_model_file` does.
    """
    from ggbench.gguf_file.header import read_model_file

    if not os.path.lexists(file):
        _refuse_name(str(file))
    return read_model_file(file, allow_missing_data=True)


def _refuse_name(text: str) -> None:
    """Raise UsageError where the other commands would take this for a MODEL that is not on this disk."""
    from ggbench.catalog.reference import CatalogRef, PathRef, parse_model
    from ggbench.errors import UsageError

    try:
        ref = parse_model(text)
    except UsageError:
        return
    if isinstance(ref, PathRef) or (isinstance(ref, CatalogRef) and not _is_known(ref.id)):
        return
    name = plain(text)
    raise UsageError(
        f"{name} names a model, and inspect reads a file",
        f"ggbench plan {name} shows what it needs; ggbench models lists the files on this disk",
    )


def _is_known(model_id: str) -> bool:
    from ggbench.catalog.models import load_catalog

    return any(model.id == model_id for model in load_catalog())
