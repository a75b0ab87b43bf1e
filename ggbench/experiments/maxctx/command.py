"""`ggbench maxctx`: the largest n_ctx that actually works, with the probes that prove it."""

from __future__ import annotations

import click
from msgspec.structs import replace

from ggbench.commands.budget_options import BudgetOptions, find_draft
from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.load_options import load_options_of_searches
from ggbench.commands.measure_options import measuring_options, timeout_option
from ggbench.commands.options import MeasureRequest, field_option, settings_options
from ggbench.errors import UsageError
from ggbench.experiments.maxctx.record import MaxctxSettings


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench maxctx twin:qwen1.5-0.5b q4_k_m --memory-limit 1GiB
    ggbench maxctx ~/models/model-q4_k_m.gguf -ctk q8_0 -ctv q8_0 -fa on
    ggbench maxctx model-q4_k_m.gguf --engine "llama-server -dev Vulkan0"
    """,
)
@settings_options(MaxctxSettings)
@field_option(BudgetOptions, "draft", "Load a draft model for speculative decoding as well.")
@timeout_option("3600, as a batch at the end is slow on a CPU")
@measuring_options(many=True, has_own_timeout=True, own_models=True, load=load_options_of_searches)
def command(settings: MaxctxSettings, draft: str | None, asked: MeasureRequest) -> None:
    """Find the largest n_ctx by real allocations, and decode at its end to prove it.

    The search begins near the max n_ctx of ggbench plan and narrows to 256 tokens. On a GPU, only GPU memory counts;
    with -ngl, only the layers on it.

    It narrows to 256 tokens of each slot, then decodes a full batch plus one token of each slot at the end of the
    largest context; if that fails, it searches lower. With --draft or --mtp, each context is created together with the
    one that drafts, and a draft model decodes at its end too.

    With --engine llama-server, on a GPU, the search begins at the theory, which counts only weights and KV cache; the
    server is started with each -c, and requests fill every slot of the largest to its end.

    --why lists every context tried, the plan with its memory and reserve, how the smallest failing n_ctx failed, and
    the buffers. Several QUANTS share one table; a failed one shows its reason.
    """
    from ggbench.commands.downloads import allow_downloads
    from ggbench.commands.measuring import make_jobs
    from ggbench.commands.run_output import measure_and_show
    from ggbench.experiments.maxctx.measure import EXPERIMENT

    drafting = find_draft(draft, asked.setup, asked.hub)
    jobs = make_jobs(EXPERIMENT, settings, asked, every=len(asked.model.quants) > 1)
    if drafting is not None:
        if asked.model.engine:
            raise UsageError("only llama.cpp drafts", "omit --draft")
        allow_downloads([drafting], asked.hub, asked.output)
        jobs = [replace(job, draft=drafting) for job in jobs]
    if asked.setup.memory_limit_bytes is None:
        asked.output.notice("without --memory-limit a search may use nearly all free memory")
    measure_and_show(jobs, asked)
