"""What a quant or a type of KV cache loses: the record, and which losses people notice."""

from __future__ import annotations

from typing import Literal

import msgspec

from ggbench.stats.intervals import Estimate

LossBasis = Literal["measured", "published typical", "unquantized"]

UNNOTICED_LOSS = 0.012
"""Losses in nats up to which nobody can tell quants apart.

q5_k_m of Llama 3 8B loses 0.0108, q6_k 0.0055 (llama.cpp, tools/perplexity/README.md); with q6_k, 96.0 % of the most
probable tokens stay the same, of f16 against itself 97.7 %. Close to the base, KL divergence has no relation left to
task scores (arXiv 2606.19558), and the answers that flip grow with it (arXiv 2407.09141).
"""
NOTICED_LOSS = 0.05
"""Loss in nats from which people notice: between q4_k_m, 0.031, and q3_k_m, 0.10, of the same table.

q4_k_m is the common default, and below it guides warn. By S. McLeod (smcleod.net, April 2026) 0.01 to 0.05 is usual at
4 bits, and answers obviously differ above 0.1.
"""


class PublishedLoss(msgspec.Struct, frozen=True):
    """The loss of a quant of a published model."""

    of: str
    """The model and the importance matrix; losses are comparable if both are equal."""
    nats: float
    error: float
    """Standard error; 0 if none is published."""


class Loss(msgspec.Struct, frozen=True):
    """A loss of quality: the mean KL divergence in nats per token."""

    nats: Estimate
    """If measured, mean and 95 % interval; if typical, median and range over models."""
    basis: LossBasis
    source: str
    """For people: `run 12, from q8_0`, `q4_k_m of llama-3-8b`."""
    published: tuple[PublishedLoss, ...] = ()
    """The published losses behind a typical loss."""
    of: tuple[str, ...] = ()
    """The models whose median a typical loss is."""


def added(*losses: Loss | None) -> Estimate | None:
    """Return losses measured apart, added, as the divergences of two small independent disturbances are to second
    order; None if one is unknown.

    With SmolLM2 135M over the same text, q4_k_m loses 0.0590, a q4_0 cache 0.0573 (with q4_1), both together 0.1145.
    """
    known = [each.nats for each in losses if each is not None]
    if len(known) < len(losses):
        return None
    return Estimate(*(sum(getattr(each, end) for each in known) for end in Estimate.__struct_fields__))
