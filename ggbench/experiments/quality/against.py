"""A score beside the published ones nearest to it, with every difference named.

Perplexities of different texts, chunk lengths or tokenizers do not compare. What a quant costs relative to the 16-bit
model, ln PPL ratio and KL divergence, compares better, and is why rows of other models are shown at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import RenderableType
from rich.text import Text

from ggbench.experiments.quality.record import QualityResult
from ggbench.experiments.quality.texts import SHA256, WIKITEXT_2
from ggbench.models.published.rows import Figure, PublishedRow, ln_ppl_ratio, load_published
from ggbench.models.published.selection import NearRow, OwnScore, nearest_published
from ggbench.runs.run import Run
from ggbench.show import UNKNOWN
from ggbench.show.against import Beside, against_table, published_model
from ggbench.show.columns import estimate_text
from ggbench.show.names import kv_name, model_name
from ggbench.show.published_document import NEAR
from ggbench.show.tables import spaced
from ggbench.stats.intervals import Estimate
from ggbench.units import format_count, format_number, format_percent

_NEAREST = 3
_COMPARES = (
    "Perplexities of different texts, n_ctx or tokenizers do not compare. ln PPL ratio, here computed from the printed "
    "perplexities, and KLD are relative to each model's own base and compare better."
)
_KV = "f16"


def nearest_to_score(run: Run) -> tuple[NearRow, ...]:
    """Return the published qualities nearest to a run; empty where it has scored nothing."""
    own = _own_score(run)
    return () if own is None else nearest_published(load_published(), own, _NEAREST)


def quality_against_document(run: Run) -> dict[str, object]:
    """Return the field `against` for JSON: the nearest published rows, each with its differences."""
    rows = []
    for near in nearest_to_score(run):
        ratio, error = ln_ppl_ratio(near.row) or (None, None)
        rows.append(NEAR.value(near, ln_ppl_ratio=ratio, ln_ppl_ratio_error=error))
    return {"against": rows}


def _own_score(run: Run) -> OwnScore | None:
    found, setup, subject = run.result, run.head.setup, run.subject
    if not isinstance(found, QualityResult) or found.ppl is None:
        return None
    types = setup.cache_types or (_KV, _KV)
    base = found.base and kv_name(found.base.subject.quant, found.base.type_k, found.base.type_v)
    return OwnScore(
        model=published_model(subject),
        own_model=model_name(subject),
        n_params=subject.n_params,
        quant=subject.quant,
        kv_types=types[0] if len(set(types)) == 1 else "/".join(types),
        text=_text_name(found),
        n_ctx=found.n_ctx,
        n_chunks=found.n_chunks,
        is_whole=found.scored is not None and found.n_chunks == found.scored.n_chunks,
        base=base or ("a file of logits" if found.divergence else None),
    )


def _text_name(found: QualityResult) -> str:
    """The text's name; it is WikiText-2 by its content, not by what its file is called."""
    if found.text.sha256 == SHA256:
        return WIKITEXT_2
    return f"another {WIKITEXT_2}" if found.text.name == WIKITEXT_2 else found.text.name


def quality_against(runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
    """Return a table for each run: its own figures, the nearest published ones, and every difference below."""
    tables = [_table(run, near, width) for run in runs if (near := nearest_to_score(run))]
    return spaced([*tables, Text(_COMPARES, style="dim")])


def _table(run: Run, near: Sequence[NearRow], width: int | None) -> RenderableType:
    found = run.result
    assert isinstance(found, QualityResult)
    apart, quant = found.divergence, kv_name(run.subject.quant, *(run.head.setup.cache_types or ()))
    columns = (
        Beside("PPL", "", estimate_text(found.ppl), _estimated("perplexity")),
        Beside("ln PPL ratio", "", estimate_text(apart.ln_ppl_ratio if apart else None), _ratio),
        Beside("KLD", "nats", estimate_text(apart.kld if apart else None), _estimated("kld")),
        Beside("same top", "", format_percent(apart.same_top.mean if apart else None), _share("same_top_percent"), 1),
        Beside("RMS Δp", "", format_percent(apart.rms_p_diff.mean if apart else None), _share("rms_dp_percent"), 2),
    )
    note = f"{found.text.name}, n_ctx {format_count(found.n_ctx)}, {format_count(found.n_chunks)} chunks"
    title = f"{model_name(run.subject)} {quant} against published rows"
    return against_table(title, quant, columns, near, note, width=width, name=lambda row: row.model)


def _ratio(row: PublishedRow) -> str:
    found = ln_ppl_ratio(row)
    return UNKNOWN if found is None else _number(*found)


def _estimated(name: str) -> Callable[[PublishedRow], str]:
    def text(row: PublishedRow) -> str:
        figure: Figure | None = getattr(row, name)
        return UNKNOWN if figure is None or figure.value is None else _number(figure.value, figure.error)

    return text


def _share(name: str) -> Callable[[PublishedRow], str]:
    def text(row: PublishedRow) -> str:
        figure: Figure | None = getattr(row, name)
        return format_percent(None if figure is None or figure.value is None else figure.value / 100)

    return text


def _number(value: float, error: float | None) -> str:
    return format_number(value, 4) if error is None else estimate_text(Estimate(value, error))
