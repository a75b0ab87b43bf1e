"""`ggbench inspect`: what a GGUF holds, from its header alone."""

from __future__ import annotations

from pathlib import Path

import click

from ggbench.cli.output import Output, output_options


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--tensors", is_flag=True, help="Every tensor with its shape, type and bytes.")
@output_options
def command(file: Path, tensors: bool, output: Output) -> None:
    """Show metadata, tensor types, parameters, BPW and KV bytes per token of FILE; the weights are not read."""
    from ggbench.gguf_file.header import read_model_file

    model_file = read_model_file(file)
    if output.as_json:
        from ggbench.report.documents import model_file_document

        output.document("inspect", **model_file_document(model_file, tensors=tensors))
        return
    from ggbench.report.terminal.model_file import header_details, tensors_table

    output.show(header_details(model_file))
    if tensors:
        output.show(tensors_table(model_file))
