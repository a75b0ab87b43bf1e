"""The numbers that define a model's shape, from which a header can be written without any file.

Covers the architectures that `blueprint` can lay out; names are those of llama.cpp's `llama_hparams`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ggbench.errors import UsageError

ARCHITECTURES = ("qwen2", "qwen2moe")

_COUNTS = ("n_layer", "n_embd", "n_head", "n_head_kv", "n_ff", "n_vocab", "n_ctx_train")
_EXPERT_COUNTS = ("n_expert", "n_expert_used", "n_ff_expert", "n_ff_shared_expert")
_LARGEST = 1 << 31


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """The shape of a dense or mixture-of-experts transformer; UsageError names an invalid field."""

    architecture: str
    """llama.cpp's name, one of `ARCHITECTURES`."""
    n_layer: int
    n_embd: int
    n_head: int
    n_head_kv: int
    n_ff: int
    """Width of a dense feed-forward; in a mixture of experts only metadata."""
    n_vocab: int
    n_ctx_train: int
    head_dim: int | None = None
    """None: `n_embd // n_head`."""
    rope_freq_base: float = 1e6
    norm_rms_eps: float = 1e-6
    tied_embeddings: bool = False
    """Whether the output reuses the table of input embeddings, so that the file holds it once."""
    qkv_bias: bool = True
    n_expert: int = 0
    n_expert_used: int = 0
    n_ff_expert: int = 0
    """Width of one expert's feed-forward."""
    n_ff_shared_expert: int = 0
    """Width of the feed-forward that every token passes in addition to its experts."""

    def __post_init__(self) -> None:
        if problem := next(self._problems(), ""):
            raise UsageError(problem, "look at the model's entry in models.toml")

    def _problems(self) -> Iterator[str]:
        """Yield what is wrong with the fields; only the first is certain, since each check relies on those before."""
        if self.architecture not in ARCHITECTURES:
            yield f"architecture {self.architecture!r} has no blueprint, known are {', '.join(ARCHITECTURES)}"
        has_experts = self.architecture == "qwen2moe"
        optional = () if self.head_dim is None else ("head_dim",)
        for name in (*_COUNTS, *optional, *(_EXPERT_COUNTS if has_experts else ())):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < _LARGEST:
                yield f"{name} has to be a whole number above zero, not {value!r}"
        for name in ("rope_freq_base", "norm_rms_eps"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and math.isfinite(value) and value > 0):
                yield f"{name} has to be a number above zero, not {value!r}"
        for name in _EXPERT_COUNTS:
            if getattr(self, name) and not has_experts:
                yield f"{name} is given, and {self.architecture} has no experts"
        if self.n_embd_head * self.n_head != self.n_embd:  # llama.cpp's qwen2 loads no other shape
            yield f"n_embd {self.n_embd} is not n_head {self.n_head} x head_dim {self.n_embd_head}"
        if self.n_head % self.n_head_kv:
            yield f"n_head {self.n_head} is not a multiple of n_head_kv {self.n_head_kv}"
        if self.n_embd_head % 2:
            yield f"head_dim {self.n_embd_head} is odd, and rotary positions need pairs"
        if self.n_expert_used > self.n_expert:
            yield f"n_expert_used {self.n_expert_used} is above n_expert {self.n_expert}"

    @property
    def n_embd_head(self) -> int:
        """Width of one attention head."""
        return self.n_embd // self.n_head if self.head_dim is None else self.head_dim
