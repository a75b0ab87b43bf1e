"""`ggbench published`: measurements of others, from documents and from llama-bench tables in public places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.options import option, output_options
from ggbench.commands.output import Output
from ggbench.errors import UsageError
from ggbench.models.published import PublishedRow, load_published, load_sources
from ggbench.models.published.benches import BenchedRow, load_benches
from ggbench.models.published.selection import AnyRow, filter_published

ACCEPTANCE = "acceptance"
"""The source that is the table of drafts."""


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench published qwen2.5-72b --system vllm
    ggbench published --source llama-bench --device rtx-3090 --quant q4_0
    ggbench published --source acceptance
    """,
)
@click.argument("model", required=False)
@option(
    "--system",
    "Inference system: vllm, llama.cpp, hf-transformers. Also autoawq, bitsandbytes.",
    metavar="NAME",
)
@option("--device", "GPU: a100, rtx-4090, rx-7900-xtx or m2-ultra.", metavar="NAME")
@option("--quant", "Quant, e.g. q4_k_m, gptq-int4, awq or bf16.", metavar="NAME")
@option(
    "--source",
    "Only this document's rows, or llama-bench; acceptance has drafts'. Without options, they are listed.",
    metavar="ID",
)
@output_options
def command(
    output: Output,
    **filters: str | None,
) -> None:
    """Show what others published: speed and memory of Qwen models, quality of quants, and rows of llama-bench.

    MODEL is an id, or words of one: qwen2.5 is every size. Without anything, the documents are listed. bench, quality,
    speed, compare and results show have --against published, which shows the nearest rows below your own.

    Rows of documents cover HF Transformers, vLLM, bitsandbytes, AutoGPTQ, AutoAWQ and llama.cpp on A100, 4090, H100 and
    T4, and the perplexity and KL divergence of llama.cpp quants. Non-numeric entries, such as oom or "not reported",
    are shown verbatim. Rows of llama-bench, which people published in repositories and issues, cover cards of NVIDIA,
    AMD, Intel and Apple, and CPUs; each has its source. --against published names every difference.
    """
    selections = [each for each in filters.values() if each]
    if filters["source"] == ACCEPTANCE:
        _list_acceptances(output, selections)
        return
    rows, benches = _selected(filters)
    from ggbench.show.published import PUBLISHED, published_answer, published_record, sources_answer

    answer = sources_answer(load_sources(), benches)
    if selections:
        answer = published_answer(rows, benches)
    output.either(PUBLISHED, published_record(rows, benches), answer)


def _list_acceptances(output: Output, selections: Sequence[object]) -> None:
    """Raises UsageError with a selection besides the source."""
    from ggbench.expect.drafts import load_acceptances
    from ggbench.show.published import PUBLISHED, acceptances_answer, published_record

    if len(selections) > 1:
        raise UsageError(
            f"--source {ACCEPTANCE} lists all of its rows", "add nothing but --json, --md or --why"
        )
    rows = load_acceptances()
    output.either(PUBLISHED, published_record((), (), rows), acceptances_answer(rows))


_Rows = tuple[PublishedRow, ...]
_Benches = tuple[BenchedRow, ...]


def _selected(filters: Mapping[str, str | None]) -> tuple[_Rows, _Benches]:
    """Return the rows of documents and those of llama-bench. Raises UnknownName."""
    everything: tuple[AnyRow, ...] = (*load_published(), *load_benches())
    kept = filter_published(everything, **filters)
    rows = tuple(row for row in kept if isinstance(row, PublishedRow))
    benches = tuple(row for row in kept if isinstance(row, BenchedRow))
    return rows, benches
