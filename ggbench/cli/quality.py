"""`ggbench quality`: what a quant, and a quantized KV cache, cost in quality."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ggbench.cli.options import PATH, Asked, measuring_options, option
from ggbench.errors import UsageError

if TYPE_CHECKING:
    from ggbench.catalog.selector import Target
    from ggbench.recording.experiment import Base, Job

_NO_BASE = "none"


@click.command()
@option("--text", "Score this file of UTF-8 text. Default: Python's own reference manual.", PATH, metavar="FILE")
@option("--chunks n_chunks", "Score at most N chunks. Default: the whole text.", click.IntRange(1), metavar="N")
@option("--within", "Score as many chunks of each row as fit into this time, e.g. 10m.", metavar="TIME")
@option(
    "--base base_quant",
    "Compare with this quant. Default: the largest on this disk; `none` computes the perplexity alone.",
    metavar="QUANT",
)
@option("--base-logits", "Compare with a file of logits of llama-perplexity's.", PATH, metavar="FILE")
@option("--save-base-logits", "Save the logits of the one QUANT for --base-logits.", PATH, metavar="FILE")
@measuring_options(many=True, kv_lists=True)
def command(
    text: Path | None,
    n_chunks: int | None,
    within: str | None,
    base_quant: str | None,
    base_logits: Path | None,
    save_base_logits: Path | None,
    kv_types: tuple[tuple[str, str], ...],
    asked: Asked,
) -> None:
    """Score a text with each of QUANTS: perplexity, and KL divergence from a base, each with its error.

    The text is cut into chunks of --n-ctx tokens, 512 unless given, and the second half of each is scored, as
    llama-perplexity does. With lists, --type-k f16,q8_0 --type-v f16,q8_0 shows what a quantized KV cache costs.
    """
    from ggbench.catalog.texts import find_text
    from ggbench.cli.measuring import make_jobs, measure
    from ggbench.cli.run_output import show_measured
    from ggbench.experiments.quality import EXPERIMENT
    from ggbench.records.quality import N_CTX, QualitySettings
    from ggbench.units import parse_duration

    if base_logits and (base_quant or save_base_logits):
        raise UsageError("--base-logits is the base already", "omit --base and --save-base-logits")
    source, _ = find_text(text)
    n_ctx = asked.setup.n_ctx or N_CTX
    settings = QualitySettings(
        source,
        n_ctx,
        n_chunks,
        None if within is None else parse_duration(within),
        max(1, asked.setup.n_batch // n_ctx),
        str(base_logits.absolute()) if base_logits else "",
        str(save_base_logits.absolute()) if save_base_logits else "",
    )
    asked = replace(asked, setup=replace(asked.setup, n_ctx=None))
    jobs = make_jobs(EXPERIMENT, settings, asked, every=True)
    if save_base_logits and len(jobs) > 1:
        raise UsageError("--save-base-logits saves the logits of one quant", "name one QUANT")
    is_alone = bool(base_logits or save_base_logits) or base_quant == _NO_BASE
    base = None if is_alone else _base(asked, base_quant, [job.target for job in jobs])
    measured = measure(_with_kv_types(jobs, base, kv_types), asked)
    show_measured(measured)
    measured.leave()


def _base(asked: Asked, quant: str | None, targets: Sequence[Target]) -> Base | None:
    """The quant that was named, else the largest file of the model that is on this disk; None where there is none."""
    from ggbench.catalog.selector import resolve, resolve_one
    from ggbench.recording.experiment import Base

    if quant is not None:
        return Base(resolve_one(asked.model, quant, hub=asked.hub.access()))
    known = [*targets, *(resolve(asked.model, hub=asked.hub.access()) if asked.quants else ())]
    here = [target for target in known if target.path is not None]
    return Base(max(here, key=lambda target: target.file_bytes or 0)) if here else None


def _with_kv_types(jobs: Sequence[Job], base: Base | None, kv_types: Sequence[tuple[str, str]]) -> list[Job]:
    """A job for each quant and pair of types. What would be compared with itself is scored alone, if it is all."""
    rows = []
    for job in jobs:
        for type_k, type_v in kv_types:
            row = replace(job, setup=replace(job.setup, type_k=type_k, type_v=type_v), base=base)
            if base is not None and (job.target, type_k, type_v) == (base.target, base.type_k, base.type_v):
                row = replace(row, base=None)
            rows.append(row)
    compared = [row for row in rows if row.base is not None]
    return compared or rows
