"""`ggbench quality`: the loss of quality due to a quant or a quantized KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.load_options import kv_list_options, load_options_but_kv_types
from ggbench.commands.measure_options import measuring_options, tuned_option, with_tuned
from ggbench.commands.options import PATH, MeasureRequest, against_option, field_option, option
from ggbench.errors import ExitCode, NetworkError, UsageError
from ggbench.experiments.quality.record import N_CTX, NO_BASE, QualityRequest, QualitySettings

if TYPE_CHECKING:
    from ggbench.runs.experiment import Job
    from ggbench.runs.session import Base


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench quality ~/models/qwen2.5-7b q2_k q4_k_m --base q8_0 --chunks 16
    ggbench quality ~/models/qwen2.5-7b --text wikitext-2 --within 30m
    ggbench quality model.gguf --type-k f16,q8_0 --type-v f16,q8_0 -c 8k
    """,
)
@field_option(QualityRequest, "text")
@field_option(QualityRequest, "n_chunks")
@field_option(QualityRequest, "within_s")
@field_option(QualityRequest, "base")
@option("--base-logits", "Compare with logits that llama-perplexity saved.", PATH, metavar="FILE")
@option("--save-base-logits", "Save the logits for --base-logits (one QUANT only).", PATH, metavar="FILE")
@against_option
@tuned_option
@measuring_options(many=True, load=lambda function: kv_list_options()(load_options_but_kv_types(function)))
def command(
    text: str | None,
    n_chunks: int | None,
    within_s: float | None,
    base: str | None,
    base_logits: Path | None,
    save_base_logits: Path | None,
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
    logits) is shown with the reason. --base-logits and --save-base-logits read and write the files of
    llama-perplexity's --kl-divergence-base. --against published shows the nearest llama.cpp and Qwen rows and what
    differs. Compare the KL divergence, which is relative to a base; perplexities are rarely comparable.
    """
    from ggbench.commands.measure_options import given_setup
    from ggbench.commands.measuring import make_jobs, measure
    from ggbench.commands.run_output import show_measured
    from ggbench.experiments.quality.measure import EXPERIMENT, find_bases, quality_jobs
    from ggbench.experiments.quality.texts import WIKITEXT_2, find_text

    _check_logits(base_logits, save_base_logits, base)
    given_setup(EXPERIMENT, asked)
    if text == WIKITEXT_2:
        _fetch_wikitext(asked)
    source, _ = find_text(text)
    n_ctx = asked.setup.n_ctx or N_CTX
    logits = ("" if path is None else str(path.absolute()) for path in (base_logits, save_base_logits))
    n_seqs = max(1, asked.setup.n_batch // n_ctx)
    settings = QualitySettings(source, n_ctx, n_chunks, within_s, n_seqs, *logits)
    asked = replace(asked, setup=replace(asked.setup, n_ctx=None))
    try:
        jobs = make_jobs(EXPERIMENT, settings, asked, every=True)
    except NetworkError as error:
        raise error.without_twin() from error
    if save_base_logits and len(jobs) > 1:
        raise UsageError("--save-base-logits takes exactly one quant", "give one QUANT")
    targets = [job.target for job in jobs]
    wanted = NO_BASE if base_logits or save_base_logits else base
    bases = find_bases(asked.model, wanted, targets, asked.hub.access())
    jobs = quality_jobs(targets, asked.setup, settings, bases, kv_types, is_base_named=base is not None)
    _tell_own_bases(jobs, bases, asked)
    measured = measure(with_tuned(jobs, asked, keeps_cache=True), asked)
    show_measured(measured, against=against)
    measured.leave()


def _tell_own_bases(jobs: Sequence[Job], bases: Sequence[Base | None], asked: MeasureRequest) -> None:
    """Print which quants are compared with nothing, as they are the base."""
    from ggbench.show.words import say

    own = [base.target for base in bases if base is not None]
    alone = [job.target.quant for job in jobs if job.base is None and job.target in own]
    asked.output.notice(*(say("quality.own_base", quant=quant) for quant in alone))


def _check_logits(base_logits: Path | None, save_base_logits: Path | None, base: str | None) -> None:
    """Raise UsageError or BadFile for files of logits that exclude each other, cannot be read, or exist already."""
    from ggbench.experiments.quality.logits_file import read_logits_file

    if base_logits and (base or save_base_logits):
        raise UsageError("--base-logits is already the base", "omit --base and --save-base-logits")
    if save_base_logits and save_base_logits.exists():
        raise UsageError(f"{save_base_logits.name} exists already", "use another file for --save-base-logits")
    if base_logits:
        read_logits_file(base_logits)


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
