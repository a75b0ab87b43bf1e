"""`ggbench inspect`: contents of a GGUF file, from its header alone."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ggbench.cli.options import PATH, option, output_options
from ggbench.cli.output import Output
from ggbench.errors import UsageError
from ggbench.plain import plain


@click.command()
@click.argument("file", type=PATH)
@option("--tensors", "List every tensor with its shape, type and bytes.", is_flag=True)
@output_options
def command(file: Path, tensors: bool, output: Output) -> None:
    """Show metadata, tensor types, parameters, BPW and KV bytes per token of FILE; the weights are not read.

    An incomplete download is shown as well, with how much is missing.
    """
    from ggbench.gguf_file.header import read_model_file

    if not os.path.lexists(file):
        _refuse_name(str(file))
    model_file = read_model_file(file, allow_missing_data=True)
    if output.as_json:
        from ggbench.report.model_documents import model_file_document

        output.document("inspect", **model_file_document(model_file, tensors=tensors))
        return
    from ggbench.report.terminal.model_file import header_details, tensors_table

    output.show(header_details(model_file))
    if tensors:
        output.show(tensors_table(model_file))


def _refuse_name(text: str) -> None:
    """Raise UsageError where the other commands would take this for a MODEL that is not on this disk."""
    from ggbench.catalog.models import load_catalog
    from ggbench.catalog.reference import CatalogRef, PathRef, parse_model

    try:
        ref = parse_model(text)
    except UsageError:
        return
    if isinstance(ref, PathRef) or (isinstance(ref, CatalogRef) and all(each.id != ref.id for each in load_catalog())):
        return
    name = plain(text)
    raise UsageError(
        f"{name} names a model, and inspect reads a file",
        f"ggbench plan {name} shows what it needs; ggbench models lists the files on this disk",
    )
