"""Compare quality runs: figures, metrics, verdicts, caveats, a chart over speed, and the nearest published rows.

Perplexities of different texts, chunk lengths or tokenizers are not comparable, nor are divergences from different
bases. The loss relative to the 16-bit model, ln PPL ratio and KL divergence, is more comparable, so published rows of
other models are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ggbench.experiments.quality.record import QualityResult
from ggbench.models.published import load_published
from ggbench.models.published.selection import OwnScore, nearest_published
from ggbench.models.subject import model_name
from ggbench.runs.run import Run
from ggbench.show.against import Beside, published_model
from ggbench.show.charts import Curve, LineChart
from ggbench.show.figure import Figure, bounded_text, is_bound, reader, value_text
from ggbench.show.metric import Metric, vary
from ggbench.show.names import kv_name, row_labels
from ggbench.show.run_figures import CACHE_TYPES
from ggbench.stats.intervals import Estimate, log_shares
from ggbench.text import in_words
from ggbench.units import counted, format_count, format_percent

_Figure = Figure[Run]
_OTHER_TEXTS = "different texts or chunks"
_OTHER_BASES = "different texts, chunks or bases"


def quality_of(run: Run) -> QualityResult | None:
    """Return the scores of a text; None without any."""
    return run.result_as(QualityResult)


def _figure(key: str, header: str, meaning: str, path: str = "", **more: Any) -> _Figure:  # noqa: ANN401 - a figure's members
    return _Figure(key, header, reader(path or key, quality_of), meaning=meaning, **more)


def _estimated(key: str, header: str, meaning: str, path: str, **more: Any) -> _Figure:  # noqa: ANN401 - a figure's members
    """Return a figure of a mean with its 95 % interval."""
    form = more.pop("form", _mean_text)
    return _figure(key, header, meaning, f"{path}.estimate", form=form, is_estimate=True, **more)


def _mean_text(mean: Estimate | float) -> str:
    """Return a mean with its interval, or alone if that is many times as wide."""
    if isinstance(mean, Estimate) and is_bound(mean):
        return value_text(mean.value)
    return bounded_text(mean, digits=4)


def _share_text(share: Estimate | float) -> str:
    return format_percent(share.value if isinstance(share, Estimate) else share)


_percent = partial(_estimated, form=_share_text)

FIGURES = (
    _estimated("kld_mean", "KLD", "Mean KL divergence from the base.", "divergence.kld", unit="nats", better="less"),
    _estimated("ppl", "PPL", "Perplexity of the scored text.", "ppl", better="less"),
    _estimated("base_ppl", "base's PPL", "Perplexity of the base.", "divergence.base_ppl", priority=3),
    _percent(
        "same_top", "same top", "Share of positions where quant and base agree on the top token.",
        "divergence.same_top", better="more", priority=1,
    ),
    _percent(
        "rms_dp", "RMS Δp", "Root mean square change of the true token's probability.", "divergence.rms_p_diff",
        priority=2,
    ),
    _figure("n_chunks", "chunks", "Scored chunks of the text.", priority=3),
)  # fmt: skip
FURTHER = (
    _percent("dp_mean", "Δp", "Mean change of the true token's probability.", "divergence.p_diff"),
    _estimated("ln_ppl_ratio", "ln PPL ratio", "ln(PPL / PPL of the base), paired.", "divergence.ln_ppl_ratio"),
)
_FIGURE = {figure.key: figure for figure in FIGURES}
SHARED = tuple(_FIGURE[key] for key in ("ppl", "kld_mean", "same_top"))
"""Those in lists of runs of other kinds."""
DOCUMENTED = (
    *FIGURES,
    *FURTHER,
    *CACHE_TYPES,
    _figure("n_ctx", "n_ctx", "Tokens of a chunk."),
    _figure("n_scored", "scored", "Scored positions."),
    _figure("base_quant", "base", "Null without a base.", "base.subject.quant"),
    _figure("text", "text", "Name of the text.", "text.name"),
)


def _difference(name: str, path: str, form: Callable[[Any], str] = value_text) -> _Figure:
    return _Figure(name, name, reader(path, quality_of), form)


DIFFERENCES = (
    _difference("text", "text.name"),
    _difference("tokens of a chunk", "n_ctx"),
    _difference("chunks scored", "n_chunks"),
    _difference(
        "base",
        "base",
        lambda base: f"{model_name(base.subject)} {base.subject.quant}, KV {base.type_k}/{base.type_v}",
    ),
)


def caveats(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return a note on results that are not comparable; empty if all are."""
    texts = [text for text in map(scored_text, runs) if text]
    if other := [what for what in (texts or [{}])[0] if len({text[what] for text in texts}) > 1]:
        return (f"different {in_words(other)}: perplexities and derived values are not comparable",)
    if vary(scored_base, runs):
        return ("different bases: KLD and same top tokens are not comparable",)
    return ()


def scored_text(run: Run) -> dict[str, object]:
    """Return the conditions, by name, that must be equal to compare perplexities; empty if nothing was scored."""
    found = quality_of(run)
    if found is None or found.scored is None or found.ppl is None:
        return {}
    return {
        "texts": found.scored.tokens_sha256,
        "chunk lengths": found.n_ctx,
        "numbers of chunks": found.n_chunks,
        "n_batch": run.setup.n_batch,
    }


def scored_base(run: Run) -> object:
    """Return a key of a run's base; None without a base."""
    found = quality_of(run)
    if found is None or found.base is None:
        return None
    base = found.base
    return base.subject.header_sha256 or base.subject.file, base.subject.quant, base.type_k, base.type_v


def _scored_chunks(run: Run) -> object:
    return tuple(scored_text(run).values()) or None


def _compared_chunks(run: Run) -> object:
    base = scored_base(run)
    return None if base is None else (_scored_chunks(run), base)


def _by_chunk(path: str) -> Callable[[Run], Sequence[float]]:
    values: Callable[[Run], Sequence[float] | None] = reader(path, quality_of)
    return lambda run: values(run) or ()


def _ppl_ratios(one: Run, other: Run) -> Sequence[float]:
    nll = _by_chunk("chunk_nll")
    return [a - b for a, b in zip(nll(one), nll(other), strict=False)]


def _ratios_of(path: str) -> Callable[[Run, Run], Sequence[float]]:
    of = _by_chunk(path)
    return lambda one, other: log_shares(of(one), of(other))


_ALIKE = 0.01
"""Share of a loss below which there is no difference."""
_OF_BASES: dict[str, Any] = {"alike": _ALIKE, "basis": _compared_chunks, "other_basis": _OTHER_BASES}
PPL = Metric(
    _FIGURE["ppl"],
    "PPL",
    "quality",
    alike=_ALIKE,
    basis=_scored_chunks,
    other_basis=_OTHER_TEXTS,
    paired=_ppl_ratios,
)
KLD = Metric(_FIGURE["kld_mean"], "KLD", "quality", paired=_ratios_of("divergence.chunk_kld"), **_OF_BASES)
_SAME_TOP = Metric(
    _FIGURE["same_top"], "same top tokens", paired=_ratios_of("divergence.chunk_same_top"), **_OF_BASES
)
METRICS = (KLD, PPL, _SAME_TOP)


def quality_over_speed(runs: Sequence[Run], names: Sequence[str]) -> LineChart:
    """Return a chart of each quant's loss over its decode speed, best at the lower right, a point for each run.

    Loss is the KLD if all have the same base, else PPL; empty if the texts differ. A quality run and a decode are
    paired if model, quant and KV types are equal; the last decode counts.
    """
    speeds = {_quant_key(each): each.latency for each in runs if each.latency is not None}
    scored = [each for each in runs if scored_text(each)]
    klds = [each for each in scored if scored_base(each) is not None]
    is_kld = len(klds) == len(scored) and not vary(scored_base, scored)
    is_comparable = not vary(_scored_chunks, scored)
    metric, y_unit = (KLD, "nats") if is_kld else (PPL, "")
    curves = []
    for run, name in zip(runs, names, strict=True):
        latency, loss = speeds.get(_quant_key(run)), metric.value(run)
        x, y, half, note = [], [], [], ""
        if latency is not None and loss is not None and is_comparable:
            x, y, note = [latency.tok_s], [loss], metric.figure.text(run)
            low, high = metric.ci95(run) or (loss, loss)
            half = [(high - low) / 2]
        curves.append(Curve(name, np.array(x), np.array(y), np.array(half), note=note))
    end = 1 + round(max((float(each.x[0]) for each in curves if len(each.x)), default=0.0))
    return LineChart(
        "quality-speed", metric.topic, y_unit, "speed", "tok/s", tuple(curves), end, least_range=1e-6
    )


def _quant_key(run: Run) -> tuple[str, ...]:
    subject, types = run.subject, run.setup.cache_types or ("", "")
    return subject.header_sha256 or subject.model, subject.quant, *types


def row_names(runs: Sequence[Run]) -> list[str]:
    """Return `q4_k_m`, or `q4_k_m, KV q8_0/q4_0` if the cache is quantized, after the model if there are several."""
    labels = row_labels([run.subject for run in runs])
    return [kv_name(label, *(run.setup.cache_types or ())) for label, run in zip(labels, runs, strict=True)]


_NEAREST = 3
_COMPARES = (
    "perplexities of different texts, n_ctx or tokenizers are not comparable; KLD is relative to each model's base, "
    "and more comparable"
)
_KV = "f16"
WIKITEXT_2 = "173c87a53759e0201f33e0ccf978e510c2042d7f2cb78229d9a50d79b9e7dd08"
"""Hash of `wiki.test.raw` of WikiText-2, the text of published tables."""


def score_beside(run: Run) -> Beside:
    """Return the scores of a run beside the nearest published ones."""
    found, conditions = run.result, _own_score(run)
    assert isinstance(found, QualityResult)
    (quant,) = row_names([run])
    own = {"perplexity": PPL.figure.text(run), "kld": KLD.figure.text(run)}
    near = () if conditions is None else nearest_published(load_published(), conditions, _NEAREST)
    measured = f"{found.text.name}, n_ctx {format_count(found.n_ctx)}, {counted(found.n_chunks, 'chunk')}"
    title = f"{model_name(run.subject)} {quant} against published rows"
    return Beside(title, quant, own, near, f"{measured}; {_COMPARES}", lambda row: row.model)


def _own_score(run: Run) -> OwnScore | None:
    found, setup, subject = run.result, run.setup, run.subject
    if not isinstance(found, QualityResult) or found.ppl is None:
        return None
    types = setup.cache_types or (_KV, _KV)
    base = found.base
    return OwnScore(
        model=published_model(subject),
        own_model=model_name(subject),
        n_params=subject.n_params,
        quant=subject.quant,
        kv_types=types[0] if len(set(types)) == 1 else "/".join(types),
        text="wikitext-2" if found.text.sha256 == WIKITEXT_2 else found.text.name,
        n_ctx=found.n_ctx,
        n_chunks=found.n_chunks,
        is_whole=found.scored is not None and found.n_chunks == found.scored.n_chunks,
        base=None if base is None else kv_name(base.subject.quant, base.type_k, base.type_v),
    )
