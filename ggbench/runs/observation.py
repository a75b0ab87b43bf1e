"""What is recorded of a run besides its samples: one record for each idea, stored as soon as it is made."""

from __future__ import annotations

import msgspec


class WorkerStarted(msgspec.Struct, frozen=True):
    """The engine's process, to find it among those that hold a GPU's memory."""

    pid: int


class WorkerPeak(msgspec.Struct, frozen=True):
    """The most memory that the engine's process has had resident so far."""

    peak_bytes: int


class GpusInUse(msgspec.Struct, frozen=True):
    """The GPUs that hold any of the model's buffers."""

    indices: tuple[int, ...]
    """NVML's."""


class ModelDescribed(msgspec.Struct, frozen=True):
    """The engine's own words for what it loaded: llama.cpp's `llama 256M Q4_1`."""

    text: str


class PromptTiming(msgspec.Struct, frozen=True):
    """How long one prompt took to read."""

    n_prompt: int
    """Tokens of each sequence."""
    elapsed_ns: int
    n_seqs: int = 1
    sample_ns: int | None = None
    """Of sampling one first token from its logits; None where it was not timed."""
    n_depth: int = 0
    """Tokens in the cache before; 0 of every prompt that ggbench measures."""
    n_asked: int | None = None
    """Tokens that were asked for, where a server counts other than `n_prompt`; else None."""
