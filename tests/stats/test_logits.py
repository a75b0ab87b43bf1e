"""Rows of logits: log-probabilities, divergences, and llama-perplexity's 16 bits."""

import math

import numpy as np
import pytest

from ggbench.stats.logits import LEAST_LOG_PROB, Row, RowScorer, n_words, pack


def _row(seed: int, n_vocab: int = 1001, spread: float = 3.0) -> Row:
    return np.random.default_rng(seed).normal(0, spread, n_vocab).astype(np.float32)


def _log_probs(logits: Row) -> Row:
    return RowScorer(len(logits)).log_probs(logits)


def test_log_probs_are_those_of_a_softmax() -> None:
    """They sum to one, also where a logit would overflow an exponential."""
    row = _log_probs(_row(1) + np.float32(500))
    assert row.dtype == np.float32
    assert float(np.exp(row.astype(np.float64)).sum()) == pytest.approx(1, abs=1e-4)


def test_the_divergence_is_the_sum_that_llama_perplexity_takes() -> None:
    base, row = _log_probs(_row(3, spread=6)), _log_probs(_row(4, spread=6))
    p, q = base.astype(np.float64), row.astype(np.float64)
    counted = p > LEAST_LOG_PROB
    assert not counted.all()
    expected = float((np.exp(p[counted]) * (p[counted] - q[counted])).sum())
    found = RowScorer(len(row)).score(row, 5, base)
    assert found.kld == pytest.approx(expected, rel=1e-5)
    assert found.base_nll == pytest.approx(-float(base[5]))
    assert found.p_diff == pytest.approx(math.exp(q[5]) - math.exp(p[5]), rel=1e-5)
    assert found.same_top == (int(base.argmax()) == int(row.argmax()))


def test_a_model_does_not_diverge_from_itself() -> None:
    """Exactly zero, since nothing is rounded between the two."""
    row = _log_probs(_row(5))
    found = RowScorer(len(row)).score(row, 3, row.copy())
    assert (found.kld, found.p_diff, found.same_top) == (0, 0, True)


@pytest.mark.parametrize("n_vocab", [1000, 1001])
def test_sixteen_bits_keep_a_row_to_a_step_of_the_scale(n_vocab: int) -> None:
    """A row has an even number of words, and no value is below the 16 nats under the largest."""
    logits = _row(6, n_vocab, spread=8)
    words = np.zeros(n_words(n_vocab), np.uint16)
    pack(logits, words)
    assert len(words) % 2 == 0
    kept, exact = RowScorer(n_vocab).unpack(words), _log_probs(logits)
    step = 16 / 65535
    is_near = exact > exact.max() - 16
    assert not is_near.all()
    assert np.abs(kept - exact)[is_near].max() <= step
    assert kept[~is_near] == pytest.approx(float(exact.max()) - 16, abs=step)
