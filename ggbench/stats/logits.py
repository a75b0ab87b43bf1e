"""Score logits against the true next token and against another model's logits, one row of the vocabulary at a time.

The definitions are llama-perplexity's (llama.cpp, tools/perplexity/perplexity.cpp), so the results are comparable. Rows
are float32, as llama.cpp computes them; sums are float64.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ggbench.record import Record

Row: TypeAlias = NDArray[np.float32]
"""One value for each token of the vocabulary."""

LEAST_LOG_PROB = -16.0
"""Tokens with a base probability below e^-16 are ignored in the divergence: a base file has no smaller ones."""
_LEVELS = 65535
"""Number of levels of the 16 bits per token in a base file."""
N_HEADER_WORDS = 4
"""16-bit words before a row's levels: its scale and its least log-probability, as float32 each."""


class TokenScore(Record):
    """One position of a text; comparisons with a base are nan without one."""

    nll: float
    """-ln p of the true next token."""
    base_nll: float = float("nan")
    kld: float = float("nan")
    """KL divergence of the base's next-token distribution from the model's, in nats."""
    p_diff: float = float("nan")
    """p of the true next token minus the base's."""
    same_top: bool = False
    """Whether both have the same most likely token."""


class RowScorer:
    """Scores rows of a vocabulary one by one in reused arrays; each thread has its own scorer.

    New arrays for every row would be new pages from the kernel, which cost more than the arithmetic.
    """

    def __init__(self, n_vocab: int) -> None:
        self._row, self._base, self._p, self._terms = np.empty((4, n_vocab), np.float32)
        self._is_counted = np.empty(n_vocab, np.bool_)

    def nll(self, logits: Row, token: int) -> float:
        """Return -ln p of one token."""
        return float(self._log_total(logits) - logits[token])

    def log_probs(self, logits: Row, out: Row | None = None) -> Row:
        """Return ln p of every token: logits minus their log-sum-exp; without `out`, valid until the next call."""
        row: Row = np.subtract(logits, self._log_total(logits), out=self._row if out is None else out)
        return row

    def unpack(self, words: NDArray[np.uint16]) -> Row:
        """Return the log-probabilities of a row of a base file, valid until the next call."""
        scale, least = words[:N_HEADER_WORDS].view(np.float32)
        levels = words[N_HEADER_WORDS : N_HEADER_WORDS + len(self._base)]
        row: Row = np.multiply(levels, scale, out=self._base, dtype=np.float32)
        row += least
        return row

    def score(self, row: Row, token: int, base: Row) -> TokenScore:
        """Score a row of log-probabilities, followed by `token`, against the base's row."""
        np.exp(base, out=self._p)
        np.greater(base, LEAST_LOG_PROB, out=self._is_counted)
        np.multiply(self._p, self._is_counted, out=self._p)
        np.subtract(base, row, out=self._terms)
        np.multiply(self._terms, self._p, out=self._terms)
        nll, base_nll = -float(row[token]), -float(base[token])
        return TokenScore(
            nll,
            base_nll,
            float(self._terms.sum(dtype=np.float64)),
            float(np.exp(-nll) - np.exp(-base_nll)),
            bool(row.argmax() == base.argmax()),
        )

    def _log_total(self, logits: Row) -> np.float32:
        largest = logits.max()
        np.subtract(logits, largest, out=self._p)
        np.exp(self._p, out=self._p)
        return np.float32(largest + np.float32(np.log(self._p.sum(dtype=np.float64))))


def n_words(n_vocab: int) -> int:
    """Return the 16-bit words of one row of a base file."""
    return 2 * ((n_vocab + 1) // 2) + N_HEADER_WORDS


def pack(logits: Row, words: NDArray[np.uint16]) -> None:
    """Write a row in the format of llama-perplexity's base file: 16-bit levels over the 16 nats below the largest."""
    largest = logits.max()
    least = max(logits.min(), largest - np.float32(16))
    log_total = np.float32(np.log(np.exp(logits - largest).sum(dtype=np.float64)))
    scale = np.float32((largest - least) / np.float32(_LEVELS))
    words[:N_HEADER_WORDS].view(np.float32)[:] = scale, least - largest - log_total
    levels = words[N_HEADER_WORDS : N_HEADER_WORDS + len(logits)]
    levels[:] = np.rint(np.maximum(logits - least, 0) / scale) if scale else 0
