"""How MODEL names a checkpoint, and its options: those of TransformersConfig's fields, and some of llama.cpp's."""

from __future__ import annotations

from ggbench.extras.transformers.config import TransformersConfig

SCHEMES = {"transformers": "transformers:<org/name or folder>"}
"""The form of MODEL for a checkpoint, by the text before the colon."""
NOUN = "checkpoint"
CONFIG = TransformersConfig
TAKES = "a checkpoint accepts --attention, --device, -c, -t and --memory-limit"
SHARED = ("n_ctx", "threads", "memory_limit_bytes")
"""Fields whose options are also llama.cpp's."""
