"""A measured row beside the published ones that lie nearest to it, with every difference named."""

from __future__ import annotations

import re

from ggbench.catalog.published import NearRow, load_published, nearest_published
from ggbench.plain import plain
from ggbench.report.published_document import published_document

_NEAREST = 4


def nearest_to(row: Row, limit: int = _NEAREST) -> tuple[NearRow, ...]:
    """The published speeds of the row's model nearest to how it was measured; empty where none is of this model."""
    model = published_model(row)
    if model is None:
        return ()
    n_gen = row.n_gen if row.n_gen else None
    n_prompt = row.n_prompt if n_gen else max((speed.n_prompt for speed in row.prefills), default=row.n_prompt)
    return nearest_published(
        load_published(), model, row.quant, device=device_of(row), n_prompt=n_prompt, n_gen=n_gen, limit=limit
    )


def published_model(row: Row) -> str | None:
    """The published model that the row's is, told from MODEL or else from the file's name; None where none is.

    `synth:qwen1.5-7b`, `Qwen/Qwen1.5-7B-Chat-GGUF` and `qwen1_5-7b-chat-q4_k_m.gguf` are all `qwen1.5-7b`.
    """
    names = sorted({published.model for published in load_published()}, key=len, reverse=True)
    for text in (row.model, row.file):
        spelt = text.lower().replace("_", ".")
        for name in names:
            if re.search(rf"(?<![a-z0-9.]){re.escape(name)}(?![a-z0-9])", spelt):
                return name
    return None


def device_of(row: Row) -> str | None:
    """What ran the model: the main GPU where layers lay on one, else the CPU; None where the row does not tell."""
    if row.environment is None:
        return None
    on_gpu = any(buffers.weight_bytes and not buffers.is_host for buffers in row.buffers)
    if on_gpu and row.environment.gpus:
        main = row.config.main_gpu or 0
        return row.environment.gpus[main if main < len(row.environment.gpus) else 0].name
    return row.environment.cpu


def against_document(row: Row) -> dict[str, object]:
    """The nearest published rows for JSON, each with its differences; `against` as the name of the field."""
    return {
        "against": [{"differences": list(near.differences), **published_document(near.row)} for near in nearest_to(row)]
    }


def row_name(row: Row) -> str:
    """`qwen1.5-7b q4_k_m`."""
    return f"{plain(row.model)} {plain(row.quant)}"
