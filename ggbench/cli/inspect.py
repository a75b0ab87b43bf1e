"""`ggbench inspect`: the contents of a GGUF file, from the header."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.options import PATH, output_options
from ggbench.commands.output import Output
from ggbench.errors import BadFile, UsageError
from ggbench.paths import path_exists
from ggbench.text import sanitize


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench inspect model.gguf
    ggbench inspect model.gguf --why
    """,
)
@click.argument("path", type=PATH, metavar="FILE")
@output_options
def command(path: Path, output: Output) -> None:
    """Show what a GGUF holds, from its header: parameters, sizes, KV cache and tensor types; --why lists all tensors.

    A truncated file, such as an interrupted download, exits with 5. The models of a folder: ggbench models FOLDER

    Of a projector (mmproj), it shows its size and the model it belongs to. Of a truncated file, it shows
    the missing size.
    """
    from ggbench.gguf_file.header import read_model_file
    from ggbench.models.local_files import reject_checkpoint
    from ggbench.show.model_documents import INSPECT, inspected
    from ggbench.show.models import header_answer

    reject_checkpoint(path)
    if path_exists(str(path)) and path.is_dir():
        hint = f"name one of its files; its models are listed by: ggbench models {shlex.quote(str(path))}"
        raise UsageError(f"{sanitize(str(path))} is a folder", sanitize(hint))
    model_file = read_model_file(path, allow_missing_data=True)
    output.either(INSPECT, inspected(model_file), header_answer(model_file, str(path)))
    if model_file.truncation:
        raise BadFile(f"{sanitize(path.name)} is truncated: {model_file.truncation}", "download it again")
