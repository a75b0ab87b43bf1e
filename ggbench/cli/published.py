"""`ggbench published`: published measurements of other systems, from seven documents."""

from __future__ import annotations

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.options import option, output_options
from ggbench.commands.output import Output
from ggbench.errors import UsageError


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench published
    ggbench published --model qwen2.5-72b --system vllm
    ggbench published --model qwen1.5-7b --metric w_tokens_per_ms --csv
    ggbench published --metric kld --quant q4_k_m
    """,
)
@option("--model", "Model, e.g. qwen2.5-7b; qwen2.5 matches every size.", metavar="ID")
@option("--system", "Inference system: vllm, llama.cpp, hf-transformers, autoawq, bitsandbytes.", metavar="NAME")
@option("--device", "GPU: a100, rtx-4090, h100 or t4.", metavar="NAME")
@option("--quant", "Quant, e.g. q4_k_m, gptq-int4, awq or bf16.", metavar="NAME")
@option(
    "--metric",
    "Only rows with this metric: tok_s, memory_gb, w_tokens_per_ms, max_n_ctx, perplexity, kld.",
    metavar="NAME",
)
@option("--source", "Only this document's rows. Without options, the documents are listed.", metavar="ID")
@option("--sort", "Sort by a column, e.g. tok_s; -tok_s sorts in descending order.", metavar="COLUMN")
@option("--csv as_csv", "Write CSV with every column to stdout.", is_flag=True)
@output_options
def command(sort: str | None, as_csv: bool, output: Output, **filters: str | None) -> None:
    """Show published figures as printed: speed and memory of Qwen models and bitsandbytes, and quality of quants.

    1388 rows from seven documents cover HF Transformers, vLLM, bitsandbytes, AutoGPTQ, AutoAWQ and llama.cpp on A100,
    4090, H100 and T4, and the perplexity and KL divergence of llama.cpp quants. Non-numeric entries, such as oom or
    "not reported", are shown verbatim. bench, quality, speed, compare and results show have --against published, which
    shows the nearest published rows below your own and names every difference.
    """
    from ggbench.models.published import load_published, load_sources
    from ggbench.models.published.selection import filter_published

    if as_csv and output.as_json:
        raise UsageError("--csv and --json exclude each other", "use one of them")
    rows = filter_published(load_published(), **filters)
    if sort is not None:
        from ggbench.show.published import sort_published

        rows = sort_published(rows, sort)
    if output.as_json:
        from ggbench.show.published import PUBLISHED

        cited = {row.source for row in rows}
        sources = [each for each in load_sources() if each.id in cited]
        output.document(PUBLISHED, rows=rows, sources=sources)
    elif as_csv:
        from ggbench.show.published import published_csv

        click.echo(published_csv(rows), nl=False)
    elif sort is None and all(each is None for each in filters.values()):
        from ggbench.show.published import sources_table

        output.show(sources_table(load_sources()))
        output.notice(f"{len(rows)} rows. Select some with --model qwen2.5-7b, --system vllm or --device a100.")
    elif rows:
        from ggbench.show.published import published_list, published_tables

        width = output.console().width
        picked = (filters["metric"] or sort or "").strip().lstrip("-").lower().replace("-", "_")
        output.show(published_list(rows, picked, width=width) if picked else published_tables(rows, width=width))
        output.notice(f"{len(rows)} rows")
    else:
        output.notice("No published row matches all options; omit one.")
