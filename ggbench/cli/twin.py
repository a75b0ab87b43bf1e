"""`ggbench twin`: write twins to a folder."""

from __future__ import annotations

from pathlib import Path

import click
from msgspec.structs import replace

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.options import option, output_options
from ggbench.commands.output import Output


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench twin qwen2.5-7b q4_k_m -o /tmp
    ggbench twin qwen1.5-0.5b --layers 2
    """,
)
@click.argument("model")
@click.argument("quants", nargs=-1)
@option(
    "-o --output folder",
    "Folder to write to. Default: the current one.",
    click.Path(path_type=Path, file_okay=False),
    default=Path(),
    show_default=False,
    metavar="DIR",
)
@option("--layers", "Write only the first N layers, for a quick test.", click.IntRange(1), metavar="N")
@output_options
def command(model: str, quants: tuple[str, ...], folder: Path, layers: int | None, output: Output) -> None:
    """Write twins of MODEL, a catalog id, in each of QUANTS. Default: eight quants from q8_0 to q2_k.

    llama.cpp's own quantizer chooses the type of every tensor, so a twin has the published file's shape, size and
    speed. Its weights are random and its output meaningless; its metadata marks it as a twin. You need not write a twin
    to measure it: other commands take twin:ID as MODEL.
    """
    from ggbench.commands.downloads import byte_progress
    from ggbench.gguf_file.header import read_model_file
    from ggbench.gguf_file.quants import canonical_quant
    from ggbench.gguf_file.twin import cached_twin
    from ggbench.models.catalog import load_catalog
    from ggbench.models.sources import ARTICLE_QUANTS
    from ggbench.show.figure import figure_values
    from ggbench.show.model_documents import TWIN, TWINS, twins_answer

    model_id = model.removeprefix("twin:")
    known = load_catalog().model(model_id)
    name, hyper = known.id, known.hyper
    if layers is not None and layers < hyper.n_layer:
        name, hyper = f"{name}-{layers}-layers", replace(hyper, n_layer=layers)
    twins = []
    for quant in dict.fromkeys(map(canonical_quant, quants or ARTICLE_QUANTS)):
        with byte_progress(output, f"{known.id} {quant}") as on_progress:
            path = cached_twin(name, hyper, quant, folder, on_progress)
        twins.append(read_model_file(path))
    rows = [figure_values(TWIN, twin) for twin in twins]
    output.either(TWINS, {"model": known.id, "rows": rows}, twins_answer(known.id, twins))
