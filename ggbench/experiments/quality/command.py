"""`ggbench quality`: the loss of quality due to a quant or a quantized KV cache."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.load_options import kv_list_options, load_options_but_kv_types
from ggbench.commands.measure_options import measuring_options, tuned_option
from ggbench.commands.options import PATH, MeasureRequest, against_option, field_option, option
from ggbench.errors import ExitCode, NetworkError, UsageError
from ggbench.experiments.quality.record import N_CTX, NO_BASE, QualityRequest

if TYPE_CHECKING:
    pass


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench quality ~/models/qwen2.5-7b q2_k q4_k_m --base q8_0 --chunks 16
    ggbench quality ~/models/qwen2.5-7b --text wikitext-2
    ggbench quality model.gguf --type-k f16,q8_0 --type-v f16,q8_0 -c 8k
    """,
)
@field_option(QualityRequest, "text")
@field_option(QualityRequest, "n_chunks")
@field_option(QualityRequest, "base")
@option("--base-logits", "Compare with logits that llama-perplexity saved.", PATH, metavar="FILE")
@against_option
@tuned_option
@measuring_options(many=True, load=lambda function: kv_list_options()(load_options_but_kv_types(function)))
def command(
    text: str | None,
    n_chunks: int | None,
    base: str | None,
    base_logits: Path | None,
    against: str | None,
    kv_types: tuple[tuple[str, str], ...],
    asked: MeasureRequest,
) -> None:
    """Score a text with each of QUANTS: perplexity, and KL divergence from a base, which is the loss.

    Chunks of --n-ctx tokens are scored by their second half, like llama-perplexity. The same command goes on with a run
    that was stopped, and measures a finished one again.

    With a base, the table adds KL divergence, top-token agreement, and the change in the true token's probability. Base
    and quant run side by side without writing logits; if both do not fit in memory, the base's logits go to a cache
    file first.

    --type-k f16,q8_0 --type-v f16,q8_0 shows the loss of a quantized KV cache against the f16 cache of the same quant
    (or --base). ggbench compare tells runs over the same chunks apart.

    Among files of several models, each is compared with the largest of its own. Results for different texts, n_ctx or
    tokenizers are not comparable; a run stores its text's SHA-256. A twin has no quality. A failed quant (e.g. NaN
    logits) is shown with the reason. --base-logits reads a file of llama-perplexity's --kl-divergence-base. --against
    published shows the nearest llama.cpp and Qwen rows and what differs. Compare the KL divergence, which is relative
    to a base; perplexities are rarely comparable.
    """
    from ggbench.commands.measure_options import given_setup
    from ggbench.commands.measuring import make_jobs
    from ggbench.commands.run_output import measure_and_show
    from ggbench.experiments.quality.logits_file import read_logits_file
    from ggbench.experiments.quality.measure import EXPERIMENT, find_bases, quality_jobs, settings_of
    from ggbench.experiments.quality.texts import WIKITEXT_2

    if base_logits:
        if base:
            raise UsageError("--base-logits is already the base", "omit --base")
        read_logits_file(base_logits)
    given_setup(EXPERIMENT, asked)
    if text == WIKITEXT_2:
        _fetch_wikitext(asked)
    request = QualityRequest(text, n_chunks, base, asked.setup.n_ctx or N_CTX)
    settings = settings_of(
        request, asked.setup, asked.hub.access(), str(base_logits.absolute()) if base_logits else ""
    )
    asked = replace(asked, setup=replace(asked.setup, n_ctx=None))
    try:
        jobs = make_jobs(EXPERIMENT, settings, asked, every=True)
    except NetworkError as error:
        raise error.without_twin() from error
    targets = [job.target for job in jobs]
    bases = find_bases(asked.model, NO_BASE if base_logits else base, targets, asked.hub.access())
    jobs = quality_jobs(targets, asked.setup, settings, bases, kv_types, is_base_named=base is not None)
    measure_and_show(jobs, asked, keeps_cache=True, against=against)


def _fetch_wikitext(asked: MeasureRequest) -> None:
    """Download the text unless it is on this disk. Raises UsageError if an option forbids it."""
    import threading
    from concurrent.futures import CancelledError

    from ggbench.commands.downloads import download_progress
    from ggbench.commands.output import DOWNLOAD_INTERRUPTED
    from ggbench.commands.process import interrupt_sets
    from ggbench.experiments.quality.texts import WIKITEXT_2, fetch_archive, find_archive
    from ggbench.units import format_bytes

    access, cancel = asked.hub.access(), threading.Event()
    if find_archive(access) is not None:
        return
    try:
        with interrupt_sets(cancel), download_progress(asked.output, WIKITEXT_2) as on_progress:
            archive = fetch_archive(access, on_progress=on_progress, cancel=cancel.is_set)
    except CancelledError:
        asked.output.notice(DOWNLOAD_INTERRUPTED)
        raise click.exceptions.Exit(ExitCode.INTERRUPTED) from None
    asked.output.notice(f"{WIKITEXT_2}: {format_bytes(archive.stat().st_size)}, sha256 verified")
