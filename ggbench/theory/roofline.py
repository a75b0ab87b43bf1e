"""How fast memory lets a model decode: a token has to read the weights once and the KV cache once."""

from __future__ import annotations

from ggbench.errors import Unsupported, UsageError
from ggbench.gguf_file.model_file import ModelFile
from ggbench.records import Bandwidth, DecodeLimit


def decode_limit(model: ModelFile, bandwidth: Bandwidth, type_k: str = "f16", type_v: str = "f16") -> DecodeLimit:
    """Bandwidth bound on decode latency: B [ms] reads the active weights once, 1/W [ms] reads one position of KV.

    Source: the article, section 4.4. Raises Unsupported where KV is not linear in position or a tensor's size is
    unknown, and UsageError for a bandwidth that is not above zero.
    """
    if not bandwidth.bytes_per_s > 0:
        raise UsageError(f"a bandwidth of {bandwidth.bytes_per_s} bytes/s limits nothing", "give it as 1008GB/s")
    if model.active_weight_bytes is None:
        raise Unsupported(
            f"{model.name} has tensors of unknown type: {', '.join(model.unknown_types)}",
            "a newer ggbench may know them",
        )
    return DecodeLimit(
        w_tokens_per_ms=bandwidth.bytes_per_s / model.kv_bytes_per_token(type_k, type_v) / 1e3,
        b_ms=model.active_weight_bytes / bandwidth.bytes_per_s * 1e3,
        bandwidth_bytes_per_s=bandwidth.bytes_per_s,
        bandwidth_source=bandwidth.source,
    )
