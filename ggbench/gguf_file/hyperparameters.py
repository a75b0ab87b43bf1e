"""The numbers that define a model's shape, from which a header can be written without any file.

Covers the architectures that `blueprint` can lay out; names are those of llama.cpp's `llama_hparams`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ggbench.errors import UsageError

ARCHITECTURES = ("qwen2", "qwen2moe")

_LARGEST = 1 << 31
_HINT = "look at the model's entry in models.toml"


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
        if self.architecture not in ARCHITECTURES:
            raise UsageError(
                f"architecture {self.architecture!r} is not one that a header can be made for",
                f"known: {', '.join(ARCHITECTURES)}",
            )
        for name in ("n_layer", "n_embd", "n_head", "n_head_kv", "n_ff", "n_vocab", "n_ctx_train"):
            self._require_count(name, getattr(self, name))
        if self.head_dim is not None:
            self._require_count("head_dim", self.head_dim)
        if self.n_embd_head * self.n_head != self.n_embd:  # llama.cpp's qwen2 loads no other shape
            what = (
                f"n_head {self.n_head}" if self.head_dim is None else f"n_head {self.n_head} x head_dim {self.head_dim}"
            )
            raise UsageError(f"n_embd {self.n_embd} does not divide into {what}", _HINT)
        if self.n_head % self.n_head_kv:
            raise UsageError(f"n_head {self.n_head} is not a multiple of n_head_kv {self.n_head_kv}", _HINT)
        if self.n_embd_head % 2:
            raise UsageError(f"head_dim {self.n_embd_head} is odd, and rotary positions need pairs", _HINT)
        for name in ("rope_freq_base", "norm_rms_eps"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and math.isfinite(value) and value > 0):
                raise UsageError(f"{name} has to be a number above zero, not {value!r}", _HINT)
        self._check_experts()

    def _check_experts(self) -> None:
        names = ("n_expert", "n_expert_used", "n_ff_expert", "n_ff_shared_expert")
        if self.architecture == "qwen2moe":
            for name in names:
                self._require_count(name, getattr(self, name))
            if self.n_expert_used > self.n_expert:
                raise UsageError(f"n_expert_used {self.n_expert_used} is above n_expert {self.n_expert}", _HINT)
            return
        for name in names:
            if getattr(self, name) != 0:
                raise UsageError(f"{name} is given, and {self.architecture} has no experts", "qwen2moe has")

    @staticmethod
    def _require_count(name: str, value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < _LARGEST:
            raise UsageError(f"{name} has to be a whole number above zero, not {value!r}", _HINT)

    @property
    def n_embd_head(self) -> int:
        """Width of one attention head."""
        return self.n_embd // self.n_head if self.head_dim is None else self.head_dim
