"""Arithmetic of speculative decoding: what a step costs, and how many of its tokens must be accepted for it to pay.

A step drafts k tokens, verifies them with the model in one batch of k + 1, and yields L tokens on average: those
accepted, and one of the model's own. Without a draft each token takes T1. So a step pays once L exceeds its time in
units of T1. Source: Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative Decoding" (2023),
with llama-server's steps: its draft reads the verified batch again.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from ggbench.record import Record
from ggbench.stats.intervals import Estimate, geometric_mean


class StepTimes(Record):
    """The times of a step that drafts k tokens."""

    k: int
    """Drafted tokens of a step: --spec-draft-n-max of llama-server."""
    t1_ms: float
    """Decoding one token without a draft."""
    step_ms: float
    """The whole step: drafting, verifying, and reading the verified batch again with the draft."""
    sampler_ms: float = 0.0
    """Choosing one token from the model's logits, with a draft or without; no part of the other times."""

    @property
    def break_even_len(self) -> float:
        """Mean tokens of a step with which it is as fast as decoding without a draft; it pays above that."""
        return self.step_ms / self.t1_ms

    def speedup(self, mean_len: float, break_even_len: float) -> float:
        """Return the speed with steps of `mean_len` tokens over that without a draft, for this break-even."""
        sampler_ms = mean_len * self.sampler_ms
        return (mean_len * self.t1_ms + sampler_ms) / (break_even_len * self.t1_ms + sampler_ms)


class MeasuredStep(Record):
    """The times of a step over several rounds."""

    times: StepTimes
    break_even: Estimate
    """`break_even_len` with its 95 % interval."""

    def speedup(self, mean_len: float) -> Estimate:
        """Return the speed with steps of `mean_len` tokens over that without a draft."""
        found = self.break_even
        return Estimate(*(self.times.speedup(mean_len, each) for each in (found.value, found.high, found.low)))

    @property
    def best_speedup(self) -> Estimate:
        """The speed-up if every drafted token is accepted."""
        return self.speedup(self.times.k + 1)


def measured_step(rounds: Sequence[StepTimes], model_error: float = 0.0) -> MeasuredStep:
    """Return the medians of at least two rounds, and the geometric mean of break-even.

    Each round is a sample of the ratio, since a slowdown of the machine affects both of its sides; `model_error` is a
    share by which it may be off besides.
    """
    names = ("t1_ms", "step_ms", "sampler_ms")
    medians = (statistics.median(getattr(each, name) for each in rounds) for name in names)
    times = StepTimes(rounds[0].k, *medians)
    return MeasuredStep(times, geometric_mean([each.break_even_len for each in rounds], model_error))


def mean_len(acceptance: float, k: int) -> float:
    """Return the mean tokens of a step if each drafted token is accepted with this probability after those before.

    Source: equation 1 of Leviathan et al. (2023).
    """
    return sum(acceptance**n for n in range(k + 1))


def acceptance_of(length: float, k: int) -> float | None:
    """Return the acceptance that gives steps of this mean length; None if even k accepted tokens are too few."""
    if length > k + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if mean_len(middle, k) < length else (low, middle)
    return high


def best_step(steps: Sequence[MeasuredStep], acceptance: float) -> MeasuredStep:
    """Return the fastest of steps of several k at this acceptance."""
    return max(steps, key=lambda each: each.speedup(mean_len(acceptance, each.times.k)).value)
