"""Perplexity and divergence with their errors."""

import math

import numpy as np
import pytest

from ggbench.experiments.quality.scores import divergence, perplexity
from ggbench.stats.intervals import chunk_mean, log_shares, paired_ratio
from ggbench.stats.logits import LEAST_LOG_PROB, Row, RowScorer, n_words, pack


def test_divergence_reduces_every_position_as_llama_perplexity_does() -> None:
    rng = np.random.default_rng(2)
    base_nll = rng.gamma(2, 1, 1000)
    nll = base_nll + rng.normal(0.1, 0.2, 1000)
    kld, p_diff = rng.gamma(1, 0.05, 1000), rng.normal(0, 0.1, 1000)
    found = divergence(nll, base_nll, kld, p_diff, (0.9,) * 10)
    assert perplexity(nll, 100).mean == pytest.approx(math.exp(nll.mean()), rel=1e-12)
    assert found.kld.mean == pytest.approx(kld.mean(), rel=1e-12)
    assert dict(found.kld_percentiles)[100.0] == kld.max()
    assert dict(found.kld_percentiles)[50.0] == pytest.approx(np.median(kld))
    assert (found.same_top.mean, *(found.same_top.ci95 or ())) == pytest.approx((0.9, 0.9, 0.9))
    assert found.rms_p_diff.mean == pytest.approx(math.sqrt((p_diff**2).mean()))
    assert found.ln_ppl_ratio.mean == pytest.approx((nll - base_nll).mean())
    assert perplexity(nll, 1000).ci95 is None


@pytest.mark.parametrize("n_chunks", [4, 60])
def test_intervals_cover_the_truth_where_positions_of_a_chunk_are_alike(n_chunks: int) -> None:
    """Also of two runs over the same chunks, of which some are harder than others for both."""
    rng, covered = np.random.default_rng(3), np.zeros(3)
    for _ in range(400):
        hard = rng.normal(2.5, 0.5, n_chunks)
        one, other = ((hard + rng.normal(mean, 0.02, n_chunks)).tolist() for mean in (0.01, 0.0))
        mean, of_nll = chunk_mean(one), paired_ratio([a - b for a, b in zip(one, other, strict=True)])
        of_kld = paired_ratio(log_shares(one, other))
        assert mean.ci95 is not None and of_nll is not None and of_kld is not None
        covered += (
            mean.ci95[0] <= 2.51 <= mean.ci95[1],
            of_nll.low <= math.exp(0.01) <= of_nll.high,
            of_kld.low <= 2.51 / 2.5 <= of_kld.high,
        )
    assert all(0.92 <= share <= 0.98 for share in covered / 400)
    assert paired_ratio(one[:3]) is None


def _row(seed: int, n_vocab: int = 1001, spread: float = 3.0) -> Row:
    return np.random.default_rng(seed).normal(0, spread, n_vocab).astype(np.float32)


def _log_probs(logits: Row) -> Row:
    return RowScorer(len(logits)).log_probs(logits)


def test_log_probs_are_those_of_a_softmax() -> None:
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


def test_a_scorer_goes_from_row_to_row() -> None:
    """What it scored before does not show; a row that it wrote elsewhere stays."""
    scorer, first, second = RowScorer(1001), _row(8), _row(9)
    kept = scorer.log_probs(first, np.empty_like(first))
    expected = RowScorer(1001).score(_log_probs(second), 3, kept.copy())
    assert scorer.score(scorer.log_probs(second), 3, kept) == expected
    assert np.array_equal(kept, _log_probs(first))
    assert scorer.nll(first, 7) == pytest.approx(-float(_log_probs(first)[7]))


def test_a_row_of_equal_logits_is_kept() -> None:
    """Its scale is zero."""
    words = np.zeros(n_words(4), np.uint16)
    pack(np.full(4, 2.5, np.float32), words)
    assert RowScorer(4).unpack(words) == pytest.approx([-math.log(4)] * 4)
