"""One change to how a quant would be run, and what it does to memory, context and speed."""

from __future__ import annotations

from typing import Literal

import msgspec

from ggbench.engines.llama.config import LlamaConfig

ChangeKind = Literal[
    "close programs", "n_ubatch", "flash attention", "KV q8_0", "n_cpu_moe", "quant", "n_ctx", "KV q4_0", "n_gpu_layers"
]
"""In the order of what they cost: nothing; slower prompts; at most a trace of quality; experts read from main memory;
quality; context; quality at long contexts; whole layers computed by the CPU. Where less than half of the context would
be left, that costs most."""


class Program(msgspec.Struct, frozen=True):
    """A program that holds memory, with all of its processes."""

    name: str
    """Not sanitized."""
    pids: tuple[int, ...]
    held_bytes: int


class Change(msgspec.Struct, frozen=True):
    """A single change to a plan that does not fit, sized as the plan is."""

    kind: ChangeKind
    setup: LlamaConfig | None
    """The load with the change; None where the load stays as it is."""
    needed_bytes: int
    """In the planned memory, at the setup's n_ctx."""
    left_bytes: int
    """Of the budget; negative is what is still missing."""
    planned_n_ctx: int | None
    """The longest context with the change; None where none fits, or it was not looked for."""
    tok_s: float | None
    """The bound of the memory's bandwidth with the context filled; None where it is unknown."""
    quant: str = ""
    """Of another quant its name."""
    programs: tuple[Program, ...] = ()
    """What to close, the largest first."""

    @property
    def fits(self) -> bool:
        """Whether the change alone is enough."""
        return self.left_bytes >= 0
