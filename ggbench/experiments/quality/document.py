"""What a quality run says, for every output: its JSON, its texts, and which runs can be distinguished."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ggbench.experiments.quality.record import (
    Divergence,
    QualityResult,
    QualitySettings,
    ScoredBase,
    ScoredText,
    TextSource,
)
from ggbench.experiments.quality.scores import PairedDifference, paired_difference
from ggbench.models.subject import Subject
from ggbench.runs.run import Run
from ggbench.show.document import Field, Get, Shape, field, of
from ggbench.show.names import kv_name
from ggbench.show.published_document import AGAINST
from ggbench.show.run_documents import CACHE_TYPES, MEASURED_FILE, NUMBER, ORIGIN, ReadRun, run_documents
from ggbench.stats.intervals import Estimate
from ggbench.units import format_count, format_number

_ERROR = "Its standard error."
_BASE = Shape(
    "Base",
    "What was compared with.",
    of(Subject, "model quant file header_sha256?", lambda base: base.subject),
    of(ScoredBase, "type_k type_v"),
)


def _result(run: Run) -> QualityResult | None:
    return run.result if isinstance(run.result, QualityResult) else None


def _found(get: Get) -> Get:
    """Take it from the result; None without one, and where it has none."""
    return lambda run: None if (found := _result(run)) is None else get(found)


def _estimate(name: str, about: str, get: Get, error: str = "") -> tuple[Field, ...]:
    """The fields of an `Estimate` of the result: its mean, and its error under the name `error`."""
    mean = field(name, NUMBER, about, _found(lambda found: (each := get(found)) and each.mean))
    if not error:
        return mean
    return (*mean, *field(error, NUMBER, _ERROR, _found(lambda found: (each := get(found)) and each.error)))


def _of_divergence(member: str) -> Get:
    return lambda found: found.divergence and getattr(found.divergence, member)


_QUALITY = Shape(
    "Quality",
    "What a quant costs in quality.",
    MEASURED_FILE,
    CACHE_TYPES,
    of(QualityResult, "n_ctx n_chunks n_scored", _result, maybe=True),
    _estimate("ppl", "Perplexity.", lambda found: found.ppl, "ppl_error"),
    field(
        "base",
        _BASE | None,
        "Null without a base, and where it is a file of logits.",
        _found(lambda found: found.base),
    ),
    _estimate("base_ppl", "Perplexity of the base.", _of_divergence("base_ppl"), "base_ppl_error"),
    _estimate(
        "kld_mean", "Mean KL divergence from the base, in nats for each token.", _of_divergence("kld"), "kld_error"
    ),
    field(
        "kld_percentiles",
        dict[str, float] | None,
        "In nats, by the percentile, such as `99.9`.",
        _found(lambda found: found.divergence and {f"{at:g}": value for at, value in found.divergence.kld_percentiles}),
    ),
    _estimate(
        "same_top",
        "Share of the positions where both have the same most likely token, 0 to 1.",
        _of_divergence("same_top"),
        "same_top_error",
    ),
    _estimate("dp_mean", "Mean difference of the probability of the right token.", _of_divergence("p_diff")),
    _estimate("rms_dp", "Root mean square of that difference.", _of_divergence("rms_p_diff"), "rms_dp_error"),
    _estimate(
        "ln_ppl_ratio",
        "Natural logarithm of its perplexity over the base's.",
        _of_divergence("ln_ppl_ratio"),
        "ln_ppl_ratio_error",
    ),
    field("text", str | None, "Name of the text.", _found(lambda found: found.text.name)),
    field(
        "text_source",
        str | None,
        "Its path, or where a text without one comes from.",
        _found(lambda found: found.text.path or found.text.source or None),
    ),
    field("text_sha256", str | None, get=_found(lambda found: found.text.sha256)),
    of(ScoredText, "tokens_sha256", _found(lambda found: found.scored), maybe=True),
    of(QualityResult, "chunk_nll", _result, maybe=True),
    ORIGIN,
    AGAINST,
)


def _read(found: Any) -> ReadRun:  # noqa: ANN401 - an object of the shape
    text = TextSource(found.text or "unknown text", found.text_sha256 or "", None)
    settings = (
        QualitySettings(text) if found.n_ctx is None else QualitySettings(text, found.n_ctx, found.n_chunks or None)
    )
    base, tokens_sha256 = found.base, found.tokens_sha256
    result = QualityResult(
        text=text,
        n_ctx=settings.n_ctx,
        scored=None if tokens_sha256 is None else ScoredText(0, found.n_chunks or 0, 0, tokens_sha256),
        n_chunks=found.n_chunks or 0,
        n_scored=found.n_scored or 0,
        ppl=None if found.ppl is None else Estimate(found.ppl, found.ppl_error or 0.0),
        chunk_nll=found.chunk_nll or (),
        base=None if base is None else _read_base(base),
        divergence=None if found.kld_mean is None else _read_divergence(found),
    )
    return ReadRun(settings, result, ("the scores of single positions are not in the document",))


def _read_base(base: Any) -> ScoredBase:  # noqa: ANN401 - an object of the shape
    from ggbench.show.document_types import record_of

    return record_of(_BASE, base, ScoredBase, subject=record_of(_BASE, base, Subject, source="file"))


def _read_divergence(found: Any) -> Divergence:  # noqa: ANN401 - an object of the shape
    """Raises ValueError for a percentile that is no number."""
    percentiles = {float(percent): value for percent, value in (found.kld_percentiles or {}).items()}
    names = ("kld_mean", "kld_error"), ("same_top", "same_top_error"), ("dp_mean", ""), ("rms_dp", "rms_dp_error")
    kld, *rest = (
        Estimate(getattr(found, mean) or 0.0, (getattr(found, error) if error else None) or 0.0)
        for mean, error in (*names, ("ln_ppl_ratio", "ln_ppl_ratio_error"), ("base_ppl", "base_ppl_error"))
    )
    return Divergence(kld, tuple(sorted(percentiles.items(), reverse=True)), *rest)


DOCUMENTS = run_documents("quality", _QUALITY, is_swept=True, read=_read)


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
