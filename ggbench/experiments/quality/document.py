"""What a quality run says, for every output: its JSON, its texts, and which runs can be distinguished."""

from __future__ import annotations

from ggbench.experiments.quality.record import QualityResult
from ggbench.runs.run import Run
from ggbench.show.documents import origin_document, picked

_BASE = "model quant file header_sha256"


def quality_document(run: Run) -> dict[str, object]:
    """Return the run for JSON: every key is always there, null for unknown."""
    subject, setup = run.subject, run.head.setup
    found = run.result if isinstance(run.result, QualityResult) else None
    apart, ppl, base = (None, None, None) if found is None else (found.divergence, found.ppl, found.base)
    return {
        **picked(subject, "model quant file"),
        "provenance": subject.source,
        **picked(subject, "file_bytes n_params bpw weight_bytes kv_bytes_per_token"),
        **picked(setup, "type_k type_v"),
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
