"""Options for checkpoints: those of TransformersConfig's fields, and some of llama.cpp's."""

from __future__ import annotations

from ggbench.engines.transformers.config import TransformersConfig

CONFIG = TransformersConfig
TAKES = "a checkpoint accepts --cache, --attention, --device, --torch-compile, -c, -t and --memory-limit"
SHARED = ("n_ctx", "threads", "memory_limit_bytes")
"""Fields whose options are also llama.cpp's."""
