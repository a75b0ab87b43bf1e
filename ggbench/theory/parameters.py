"""Number of parameters of a model, and of those active for one token.

Counted from the tensor table, so that GQA, experts, biases and tied embeddings need no formula of their own. Norms are
not counted, as in the article: they are fewer than one parameter in ten thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ggbench.errors import Unsupported
from ggbench.gguf_file.model_file import ModelFile, TensorInfo

Role = Literal["layers", "experts", "lm_head", "embedding", "norms"]

_EMBEDDINGS = ("token_embd.weight", "per_layer_token_embd.weight", "position_embd.weight", "token_types.weight")


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameter counts of a model by role."""

    layers: int
    """In the decoder layers, used by every token: attention, dense and shared feed-forward, routers."""
    experts: int
    """In the decoder layers, all routed experts; 0 in a dense model."""
    lm_head: int
    """Output matrix; the embedding table if it is tied."""
    embedding: int
    """Tables of which a token reads one row; 0 if the only one is tied to the output."""
    n_expert: int = 0
    n_expert_used: int = 0

    @property
    def expert_share(self) -> float:
        """Fraction of the experts active for one token."""
        return self.n_expert_used / self.n_expert if self.n_expert else 1.0

    @property
    def layers_active(self) -> int:
        """Parameters of the decoder layers active for one token."""
        return self.layers + round(self.experts * self.expert_share)

    @property
    def active(self) -> int:
        """Parameters active for one token: layers and output."""
        return self.layers_active + self.lm_head

    @property
    def total(self) -> int:
        """All parameters but the norms."""
        return self.layers + self.experts + self.lm_head + self.embedding


def count_parameters(file: ModelFile) -> Parameters:
    """Count the parameters of a model by role.

    Source: the article, sections 3.1 and 5.2.1. Raises Unsupported if a required tensor is missing.
    """
    counts = sums_by_role(file.tensors, lambda tensor: tensor.n_elements)
    needed: dict[Role, str] = {"lm_head": "output.weight nor token_embd.weight", "layers": "blk.0.*"}
    for role, tensors in needed.items():
        if not counts[role]:
            raise Unsupported(f"{file.name}: has no {tensors}, which the theory needs", "give the whole model")
    del counts["norms"]
    return Parameters(**counts, n_expert=file.n_expert, n_expert_used=file.n_expert_used)


def is_tied(tensors: Iterable[TensorInfo]) -> bool:
    """Return whether the output reuses the input embedding table."""
    return not any(tensor.name == "output.weight" for tensor in tensors)


def sums_by_role(tensors: Sequence[TensorInfo], amount: Callable[[TensorInfo], int]) -> dict[Role, int]:
    """Add up what each tensor has, by role."""
    sums: dict[Role, int] = {"layers": 0, "experts": 0, "lm_head": 0, "embedding": 0, "norms": 0}
    tied = is_tied(tensors)
    for tensor in tensors:
        name = tensor.name
        role: Role = "layers"
        if name in _EMBEDDINGS:
            role = "lm_head" if tied and name == "token_embd.weight" else "embedding"
        elif "_exps." in name:
            role = "experts"
        elif "norm" in name or name.startswith("rope_freqs"):
            role = "norms"
        elif name.startswith("output."):
            role = "lm_head"
        sums[role] += amount(tensor)
    return sums
