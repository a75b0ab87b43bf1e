"""A score beside the published ones nearest to it, with every difference named.

Perplexities of different texts, chunk lengths or tokenizers do not compare. What a quant costs relative to the 16-bit
model, ln PPL ratio and KL divergence, compares better, and is why rows of other models are shown at all.
"""

from __future__ import annotations

from ggbench.experiments.quality.record import QualityResult
from ggbench.experiments.quality.texts import SHA256, WIKITEXT_2
from ggbench.models.published.quality import Scored, ln_ppl_ratio, nearest_quality
from ggbench.models.published.selection import NearRow
from ggbench.runs.run import Run
from ggbench.show.against import published_model
from ggbench.show.names import kv_name, model_name
from ggbench.show.published_document import NEAR

_KV = "f16"


def nearest_to_score(run: Run) -> tuple[NearRow, ...]:
    """Return the published qualities nearest to a run; empty where it has scored nothing."""
    own = _scored(run)
    return () if own is None else nearest_quality(own)


def quality_against_document(run: Run) -> dict[str, object]:
    """Return the field `against` for JSON: the nearest published rows, each with its differences."""
    rows = []
    for near in nearest_to_score(run):
        ratio, error = ln_ppl_ratio(near.row) or (None, None)
        rows.append(NEAR.value(near, ln_ppl_ratio=ratio, ln_ppl_ratio_error=error))
    return {"against": rows}


def _scored(run: Run) -> Scored | None:
    found, setup, subject = run.result, run.head.setup, run.subject
    if not isinstance(found, QualityResult) or found.ppl is None:
        return None
    types = setup.cache_types or (_KV, _KV)
    base = found.base and kv_name(found.base.subject.quant, found.base.type_k, found.base.type_v)
    return Scored(
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
