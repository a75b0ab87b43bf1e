"""What a run measures: one quant of one model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One quant of one model, as its header describes it."""

    model: str
    """As the person named it."""
    quant: str
    source: str
    """Where the weights come from: `file`, `hub`, `twin` (true shape, no trained weights), `catalog`, `endpoint`."""
    file: str = ""
    """Absolute path of the file or its first shard; empty where there is none."""
    file_bytes: int | None = None
    """Over all shards."""
    header_sha256: str = ""
    """`ModelFile.header_sha256`; empty when unknown."""
    n_params: int | None = None
    bpw: float | None = None
    """Tensor bytes x 8 / parameters."""
    weight_bytes: int | None = None
    """Bytes of all tensors, each once."""
    kv_bytes_per_token: int | None = None
    """Of both caches as they are typed; None where the KV is not counted from the header."""
    n_ctx_train: int | None = None
