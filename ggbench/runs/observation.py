"""What is recorded of a run besides its samples: one record for each idea, stored as soon as it is made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerStarted:
    """The engine's process, to find it among those that hold a GPU's memory."""

    pid: int


@dataclass(frozen=True, slots=True)
class WorkerPeak:
    """The most memory that the engine's process has had resident so far."""

    peak_bytes: int


@dataclass(frozen=True, slots=True)
class GpusInUse:
    """The GPUs that hold any of the model's buffers."""

    indices: tuple[int, ...]
    """NVML's."""


@dataclass(frozen=True, slots=True)
class ModelDescribed:
    """The engine's own words for what it loaded: llama.cpp's `llama 256M Q4_1`."""

    text: str


@dataclass(frozen=True, slots=True)
class PromptTiming:
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
