"""How the JSON of a decode is read back; its fields are those of a measured quant."""

from __future__ import annotations

from typing import Any

from ggbench.experiments.decode.record import DecodeResult, DecodeSettings
from ggbench.show.run_documents import NO_STEPS, QUANT, ReadRun, quant_documents
from ggbench.stats.decode_timing import LatencySummary


def _read(found: Any) -> ReadRun | None:  # noqa: ANN401 - an object of the shape
    """The decode of a measured quant; None of one whose prompts alone were read."""
    from ggbench.show.document_types import record_of

    if not found.n_gen:
        return None
    settings = DecodeSettings(found.n_gen, found.n_prompt or 0, found.repeat or 1)
    result = DecodeResult(
        n_prompt=settings.n_prompt,
        n_gen=settings.n_gen * settings.repeat,
        prefill_ms=found.prefill_ms,
        fit=found.fit,
        latency=None if found.tok_s is None else record_of(QUANT, found, LatencySummary),
        limit=found.limit,
        unsteady=found.unsteady or "",
        serving=found.serving,
    )
    searched = ["the search for max n_ctx of this row is a run of its own, which was left out"]
    return ReadRun(settings, result, (NO_STEPS, *(searched if found.max_n_ctx is not None else [])))


DOCUMENTS = quant_documents("decode", "A decode: latency of every token against its position.", _read)
