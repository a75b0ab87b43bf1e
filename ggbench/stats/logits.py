"""What logits say of the true next token, and how far they are from another model's: one row of the vocabulary each.

The definitions are llama-perplexity's (llama.cpp, tools/perplexity/perplexity.cpp), so that its figures and these can
be compared. Rows are float32, as llama.cpp computes them; sums are float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Row: TypeAlias = NDArray[np.float32]
"""One value for each token of the vocabulary."""

LEAST_LOG_PROB = -16.0
"""A token that the base gives less than e^-16 adds nothing to the divergence: a base file holds no smaller ones."""

_LEVELS = 65535
"""Of the 16 bits that a base file has for each token."""

N_HEADER_WORDS = 4
"""16-bit words before a row's levels: its scale and its least log-probability, as float32 each."""


@dataclass(frozen=True, slots=True)
class TokenScore:
    """One position of a text; what compares with a base is nan without one."""

    nll: float
    """-ln p of the true next token."""
    base_nll: float = float("nan")
    kld: float = float("nan")
    """KL divergence of the base's next-token distribution from the model's, in nats."""
    p_diff: float = float("nan")
    """p of the true next token less the base's."""
    same_top: bool = False
    """Whether both give the same token the highest probability."""


def log_probs(logits: Row) -> Row:
    """Return ln p of every token: logits less their log-sum-exp, as float32."""
    largest = logits.max()
    total = np.exp(logits - largest).sum(dtype=np.float64)
    shifted: Row = logits - np.float32(largest + np.float32(np.log(total)))
    return shifted


def score(row: Row, token: int, base: Row | None = None) -> TokenScore:
    """Score a row of log-probabilities where `token` came next, against the base's row where there is one."""
    nll = -float(row[token])
    if base is None:
        return TokenScore(nll)
    p_base = np.exp(base)
    p_base[base <= LEAST_LOG_PROB] = 0
    kld = float((p_base * (base - row)).sum(dtype=np.float64))
    base_nll = -float(base[token])
    p_diff = float(np.exp(-nll) - np.exp(-base_nll))
    return TokenScore(nll, base_nll, kld, p_diff, bool(row.argmax() == base.argmax()))


def n_words(n_vocab: int) -> int:
    """Return the 16-bit words of one row of a base file."""
    return 2 * ((n_vocab + 1) // 2) + N_HEADER_WORDS


def pack(logits: Row, words: NDArray[np.uint16]) -> None:
    """Write a row as llama-perplexity writes a base file: levels of 16 bits over the 16 nats below the largest."""
    largest = logits.max()
    least = max(logits.min(), largest - np.float32(16))
    log_total = np.float32(np.log(np.exp(logits - largest).sum(dtype=np.float64)))
    scale = np.float32((largest - least) / np.float32(_LEVELS))
    words[:N_HEADER_WORDS].view(np.float32)[:] = scale, least - largest - log_total
    levels = words[N_HEADER_WORDS : N_HEADER_WORDS + len(logits)]
    levels[:] = np.rint(np.maximum(logits - least, 0) / scale) if scale else 0


def unpack(words: NDArray[np.uint16], n_vocab: int) -> Row:
    """Return the log-probabilities of a row of a base file."""
    scale, least = words[:N_HEADER_WORDS].view(np.float32)
    row: Row = scale * words[N_HEADER_WORDS : N_HEADER_WORDS + n_vocab].astype(np.float32) + least
    return row
