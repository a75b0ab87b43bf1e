"""What a quality run says, for every output: its JSON, its texts, and which runs can be distinguished."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.quality.record import QualityResult
from ggbench.experiments.quality.scores import PairedDifference, paired_difference
from ggbench.runs.run import Run
from ggbench.show.documents import origin_document, picked
from ggbench.show.names import kv_name
from ggbench.units import format_count, format_number

_BASE = "model quant file header_sha256"


def quality_document(run: Run) -> dict[str, object]:
    """Return the run for JSON: every key is always there, null for unknown."""
    subject, setup = run.subject, run.head.setup
    llama = setup if isinstance(setup, LlamaConfig) else None
    found = run.result if isinstance(run.result, QualityResult) else None
    apart, ppl, base = (None, None, None) if found is None else (found.divergence, found.ppl, found.base)
    return {
        **picked(subject, "model quant file"),
        "provenance": subject.source,
        **picked(subject, "file_bytes n_params bpw weight_bytes kv_bytes_per_token"),
        **picked(llama, "type_k type_v"),
        **picked(found, "n_ctx n_chunks n_scored"),
        "ppl": ppl and ppl.mean,
        "ppl_error": ppl and ppl.error,
        "base": None if base is None else picked(base.subject, _BASE) | picked(base, "type_k type_v"),
        "base_ppl": apart and apart.base_ppl.mean,
        "base_ppl_error": apart and apart.base_ppl.error,
        "kld_mean": apart and apart.kld.mean,
        "kld_error": apart and apart.kld.error,
        "kld_percentiles": apart and {f"{percent:g}": value for percent, value in apart.kld_percentiles},
        "same_top": apart and apart.same_top.mean,
        "same_top_error": apart and apart.same_top.error,
        "dp_mean": apart and apart.p_diff.mean,
        "rms_dp": apart and apart.rms_p_diff.mean,
        "rms_dp_error": apart and apart.rms_p_diff.error,
        "ln_ppl_ratio": apart and apart.ln_ppl_ratio.mean,
        "ln_ppl_ratio_error": apart and apart.ln_ppl_ratio.error,
        "text": found and found.text.name,
        "text_source": (found and (found.text.path or found.text.source)) or None,
        "text_sha256": found and found.text.sha256,
        "tokens_sha256": found and found.scored and found.scored.tokens_sha256,
        "chunk_nll": found and found.chunk_nll,
        **origin_document(run),
    }


def row_name(run: Run) -> str:
    """`q4_k_m`, or `q4_k_m, KV q8_0/q4_0` where the cache is quantized."""
    setup = run.head.setup
    return kv_name(run.subject.quant, *(setup.cache_types or ()))


def verdicts(runs: Sequence[Run]) -> list[str]:
    """Return a line for each two neighbours by perplexity: how much they differ, or that they cannot be distinguished.

    Their bases are among them. Only what was scored over the same tokens is compared.
    """
    lines = []
    for better, worse in pairwise(sorted(_scored(runs), key=lambda each: statistics.fmean(each.chunk_nll))):
        if better.chunks == worse.chunks:
            difference = paired_difference(worse.chunk_nll, better.chunk_nll)
            if difference is not None:
                lines.append(_verdict(better.name, worse.name, difference))
    return lines


class _Scored(NamedTuple):
    """One model over one text."""

    chunks: tuple[str, int]
    """Hash of the tokens and length of a chunk."""
    name: str
    chunk_nll: tuple[float, ...]


def _scored(runs: Sequence[Run]) -> list[_Scored]:
    """Each once, in the order of the runs, a base after the first that is compared with it.

    A base that has a row of its own is that row.
    """
    found = []
    rows = {(run.subject.model, row_name(run)) for run in runs}
    for run in runs:
        result = run.result
        if isinstance(result, QualityResult) and result.scored is not None and result.chunk_nll:
            found.append(_Scored((result.scored.tokens_sha256, result.n_ctx), row_name(run), result.chunk_nll))
            if result.base is not None and result.base_chunk_nll:
                base = kv_name(result.base.subject.quant, result.base.type_k, result.base.type_v)
                if (result.base.subject.model, base) not in rows:
                    chunks = result.scored.tokens_sha256, result.n_ctx
                    found.append(_Scored(chunks, f"{base} (base)", result.base_chunk_nll))
    return list(dict.fromkeys(found))


def _verdict(better: str, worse: str, difference: PairedDifference) -> str:
    """`q4_1 is better than q3_k_m: PPL 15 % lower (10 to 19 %) over 16 chunks`."""
    over = f"over {format_count(difference.n_chunks)} chunks"
    if difference.low == difference.high == 0:
        return f"{better} and {worse} have the same PPL {over}"
    mean, low, high = (math.expm1(each) for each in (difference.mean, difference.low, difference.high))
    if difference.is_distinguishable:
        return f"{better} is better than {worse}, whose PPL is {_percent(mean)} higher ({_range(low, high)}) {over}"
    text = f"{better} and {worse} cannot be distinguished: the PPL of the second is {_range(low, high)} higher {over}"
    needed = difference.n_chunks_needed
    return f"{text}; about {format_count(needed)} chunks would separate them" if needed else text


def _percent(share: float) -> str:
    return f"{format_number(share * 100, 2)} %"


def _range(low: float, high: float) -> str:
    return f"{format_number(low * 100, 2)} to {_percent(high)}"
