"""`ggbench import`: results of other tools and of other machines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.options import PATH, option, output_options
from ggbench.commands.output import Output

if TYPE_CHECKING:
    from ggbench.formats.importing import Kept


@click.command(
    "import",
    cls=DocumentedCommand,
    examples="""
    ggbench import runs.zip
    ggbench import bench.json
    llama-bench -m model.gguf -lm mmap -d 0,4096 -r 5 -o json | ggbench import -
    ggbench import ppl.txt --model mine --quant q4_k_m
    """,
)
@click.argument("paths", metavar="FILE...", type=PATH, nargs=-1, required=True)
@option("--model", "Name of the model, where a file does not say it.", metavar="NAME", default="", show_default=False)
@option("--quant", "Name of the quant, where a file does not say it.", metavar="NAME", default="", show_default=False)
@output_options
def command(paths: tuple[Path, ...], model: str, quant: str, output: Output) -> None:
    """Read results of other tools into the store: llama-bench's JSON, CSV and Markdown, and llama-perplexity's output.

    It also reads what `ggbench export` writes, and what `bench`, `decode`, `prefill`, `maxctx`, `speed` and `quality`
    print with --json (all figures, but no single steps). The format is recognized by the content; - is stdin. Of
    llama-perplexity both streams are needed: llama-perplexity ... > ppl.txt 2>&1.

    Imported runs are marked, listed, plotted and compared; they never count as measured on this machine. A run that is
    there already is not stored again. W and B are fitted over llama-bench's depths, with an interval from three timings
    on; percentiles and steadiness stay unknown, and what else a file lacks is shown with the run.
    """
    from ggbench.formats.imported_run import Named
    from ggbench.formats.importing import keep, read_runs
    from ggbench.runs.store.database import Store
    from ggbench.show.names import quant_name
    from ggbench.text import sanitize

    named = Named(sanitize(model), sanitize(quant).lower())
    found = [(path, list(read_runs(path, named))) for path in paths]  # all are read before any is stored
    kept: list[Kept] = []
    with Store.open() as store:
        output.notice(*store.notices)
        for _, runs in found:
            kept += keep(store, runs)
    if output.as_json:
        from ggbench.formats.importing import IMPORTED

        output.document(IMPORTED, rows=kept)
        return
    for each in kept:
        head, mark = each.imported.run.head, each.imported.mark
        state = "" if each.is_new else "  already there"
        click.echo(
            f"run {each.run_id}  {sanitize(head.kind)}  {quant_name(head.subject)}  from {sanitize(mark.tool)}{state}"
        )
    lacks = dict.fromkeys(lack for each in kept if each.is_new for lack in each.imported.mark.lacks)
    output.notice(*(f"note: {sanitize(lack)}" for lack in lacks))
