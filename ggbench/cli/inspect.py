"""`ggbench inspect`: what a GGUF holds, from its header alone."""

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
@click.option("--tensors", is_flag=True, help="Every tensor with its shape, type and bytes.")
@output_options
def command(file: Path, tensors: bool, output: Output) -> None:
    """Show metadata, tensor types, parameters, BPW and KV bytes per token of FILE; the weights are not read.

    Of a download that stopped it tells the same, and how much is missing.
    """
    model_file, missing_bytes = _read(file)
    if output.as_json:
        from ggbench.report.documents import model_file_document

        output.document("inspect", **model_file_document(model_file, missing_bytes=missing_bytes, tensors=tensors))
        return
    from ggbench.report.terminal.model_file import header_details, tensors_table

    output.show(header_details(model_file, missing_bytes))
    if tensors:
        output.show(tensors_table(model_file))


def _read(file: Path) -> tuple[ModelFile, int]:
    """The model, and the bytes that its files lack behind their headers.

    Raises UsageError for a model's name that is no file, and as `read_model_file` does.
    """
    from ggbench.errors import BadFile
    from ggbench.gguf_file.header import read_model_file

    if not os.path.lexists(file):
        _refuse_name(str(file))
    try:
        return read_model_file(file), 0
    except BadFile:
        model_file = read_model_file(file, allow_missing_data=True)  # raises the same again for anything else
        return model_file, sum(_missing_bytes(path) for path in model_file.paths)


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
        f"ggbench plan {name} tells what it needs; ggbench models lists the files on this disk",
    )


def _is_known(model_id: str) -> bool:
    from ggbench.catalog.models import load_catalog

    return any(model.id == model_id for model in load_catalog())


def _missing_bytes(path: Path) -> int:
    """What the file is shorter than its tensor table says, its tensors following one another as llama.cpp asks."""
    from ggbench.gguf_file.encoded_header import ALIGNMENT
    from ggbench.gguf_file.header import read_local_header

    header = read_local_header(path, allow_missing_data=True)
    stated = header.metadata.get("general.alignment", ALIGNMENT)
    alignment = stated if isinstance(stated, int) else ALIGNMENT
    end = header.data_offset
    for tensor in header.tensors:
        end = -(-end // alignment) * alignment + (tensor.n_bytes or 0)
    return max(0, end - header.file_bytes) if header.tensors else 0
