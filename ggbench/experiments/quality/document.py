"""What a quality run says, for every output: its JSON, its texts, and which runs can be distinguished."""

from __future__ import annotations

from typing import Any

from ggbench.experiments.quality.record import (
    Divergence,
    QualityResult,
    QualitySettings,
    ScoredBase,
    ScoredText,
    TextSource,
)
from ggbench.models.subject import Subject
from ggbench.runs.run import Run
from ggbench.show.document import Field, Get, Shape, field, of
from ggbench.show.published import AGAINST
from ggbench.show.run_documents import CACHE_TYPES, MEASURED_FILE, NUMBER, ORIGIN, ReadRun, run_documents
from ggbench.stats.intervals import Estimate

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
    from ggbench.show.document import record_of

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
