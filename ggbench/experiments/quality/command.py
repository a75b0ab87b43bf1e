"""`ggbench quality`: what a quant, and a quantized KV cache, cost in quality."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.load_options import kv_list_options, load_options_but_kv_types, tuned_option, with_tuned
from ggbench.commands.options import PATH, MeasureRequest, against_option, field_option, measuring_options, option
from ggbench.errors import ExitCode, UsageError
from ggbench.experiments.quality.record import N_CTX, QualitySettings

if TYPE_CHECKING:
    from ggbench.models.targets import Target
    from ggbench.runs.experiment import Base


_NO_BASE = "none"


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench quality ~/models/qwen2.5-7b q2_k q4_k_m --base q8_0 --chunks 16
    ggbench quality ~/models/qwen2.5-7b --text wikitext-2 --within 30m
    ggbench quality model.gguf --type-k f16,q8_0 --type-v f16,q8_0 -c 8k
    ggbench quality ~/models/qwen2.5-7b q4_k_m --against published
    """,
)
@option(
    "--text",
    "Score this file of UTF-8 text, or wikitext-2, which is downloaded once (4.5 MiB); a file of that name is "
    "./wikitext-2. Default: Python's own reference manual.",
    metavar="FILE",
)
@field_option(QualitySettings, "n_chunks")
@field_option(QualitySettings, "within_s")
@option(
    "--base base_quant",
    "Compare with this quant, or this file. Default: the largest on this disk; `none` computes the perplexity alone.",
    metavar="QUANT",
)
@option("--base-logits", "Compare with a file of logits of llama-perplexity's.", PATH, metavar="FILE")
@option("--save-base-logits", "Save the logits of the one QUANT for --base-logits.", PATH, metavar="FILE")
@against_option
@tuned_option
@measuring_options(many=True, load=lambda function: kv_list_options()(load_options_but_kv_types(function)))
def command(
    text: str | None,
    n_chunks: int | None,
    within_s: float | None,
    base_quant: str | None,
    base_logits: Path | None,
    save_base_logits: Path | None,
    against: str | None,
    kv_types: tuple[tuple[str, str], ...],
    asked: MeasureRequest,
) -> None:
    """Score a text with each of QUANTS: perplexity, and KL divergence from a base, each with its standard error.

    The text is cut into chunks of --n-ctx tokens, 512 unless given, and the second half of each is scored, as
    llama-perplexity does. Beside a base the table has the KL divergence, how often both have the same most likely
    token, and the change of the true token's probability. The base and each quant run side by side, so no logits are
    written; where both do not fit into memory, the base is scored first, into a file in ggbench's cache.

    With lists, --type-k f16,q8_0 --type-v f16,q8_0 shows what a quantized KV cache costs: unless --base names another,
    it is compared with the f16 cache of the same quant. The comparison of neighbours under the table pairs the chunks
    and has 95 % intervals. The same command continues where a run was stopped.

    Figures of different texts, n_ctx or tokenizers do not compare; a run stores the SHA-256 of its text. A twin has no
    quality. A quant that fails, for example with logits that are not numbers, is a row with its reason. --base-logits
    and --save-base-logits read and write the files of llama-perplexity's --kl-divergence-base. --against published
    shows the nearest rows of llama.cpp's and Qwen's tables and names what differs; of these, perplexities rarely
    compare, and ln PPL ratio and KL divergence, which are relative to each model's base, do better.
    """
    from ggbench.commands.load_options import given_setup
    from ggbench.commands.measuring import make_jobs, measure
    from ggbench.commands.run_output import show_measured
    from ggbench.experiments.quality.measure import EXPERIMENT, quality_jobs
    from ggbench.experiments.quality.texts import WIKITEXT_2, find_text

    if base_logits and (base_quant or save_base_logits):
        raise UsageError("--base-logits is the base already", "omit --base and --save-base-logits")
    if save_base_logits and save_base_logits.exists():
        raise UsageError(f"{save_base_logits.name} exists already", "name another file for --save-base-logits")
    if base_logits and not base_logits.is_file():
        why, hint = "not a regular file" if base_logits.exists() else "No such file", "name a file of logits"
        raise UsageError(f"{base_logits.name} cannot be read: {why}", hint)
    given_setup(EXPERIMENT, asked)
    if text == WIKITEXT_2:
        _fetch_wikitext(asked)
    source, _ = find_text(text)
    n_ctx = asked.setup.n_ctx or N_CTX
    settings = QualitySettings(
        source,
        n_ctx,
        n_chunks,
        within_s,
        max(1, asked.setup.n_batch // n_ctx),
        str(base_logits.absolute()) if base_logits else "",
        str(save_base_logits.absolute()) if save_base_logits else "",
    )
    asked = replace(asked, setup=replace(asked.setup, n_ctx=None))
    jobs = make_jobs(EXPERIMENT, settings, asked, every=True)
    if save_base_logits and len(jobs) > 1:
        raise UsageError("--save-base-logits takes exactly one quant", "name one QUANT")
    is_alone, is_named = base_logits or save_base_logits or base_quant == _NO_BASE, base_quant is not None
    targets = [job.target for job in jobs]
    base = None if is_alone else _base(asked, base_quant, targets)
    jobs = quality_jobs(targets, asked.setup, settings, base, kv_types, is_base_named=is_named)
    measured = measure(with_tuned(jobs, asked, keeps_cache=True), asked)
    show_measured(measured, against=against)
    measured.leave()


def _fetch_wikitext(asked: MeasureRequest) -> None:
    """Download the text unless it is on this disk. Raises UsageError if an option forbids it."""
    import threading
    from concurrent.futures import CancelledError

    from ggbench.commands.downloads import download_progress
    from ggbench.commands.process import DOWNLOAD_INTERRUPTED, interrupt_sets
    from ggbench.experiments.quality.texts import WIKITEXT_2, fetch_archive, find_archive
    from ggbench.units import format_bytes

    access, cancel = asked.hub.access(), threading.Event()
    if find_archive(access) is not None:
        return
    if asked.hub.no_download:
        raise UsageError(f"{WIKITEXT_2} is not on this disk", "omit --no-download, or score another text with --text")
    try:
        with interrupt_sets(cancel), download_progress(asked.output, WIKITEXT_2) as on_progress:
            archive = fetch_archive(access, on_progress=on_progress, cancel=cancel.is_set)
    except CancelledError:
        asked.output.notice(DOWNLOAD_INTERRUPTED)
        raise click.exceptions.Exit(ExitCode.INTERRUPTED) from None
    asked.output.notice(f"{WIKITEXT_2}: {format_bytes(archive.stat().st_size)}, sha256 verified")


def _base(asked: MeasureRequest, quant: str | None, targets: Sequence[Target]) -> Base | None:
    """Return the quant or the file that was named, else the model's largest file on this disk; None without any."""
    from ggbench.experiments.quality.measure import largest_here
    from ggbench.models.reference import parse_model
    from ggbench.models.targets import resolve, resolve_one
    from ggbench.runs.experiment import Base

    if quant is not None:
        named = parse_model(quant) if Path(quant).is_file() else asked.model.of_quants(quant)
        return Base(resolve_one(named, hub=asked.hub.access()))
    others = resolve(asked.model.of_quants(), hub=asked.hub.access()) if asked.model.quants else ()
    return largest_here([*targets, *others])
