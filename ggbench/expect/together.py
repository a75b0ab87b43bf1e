"""The speed of several users at once, from that of one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec.structs import replace

from ggbench.stats.intervals import Estimate
from ggbench.stats.speed_curve import SpeedCurve

_PROMPT = 512
"""Prompt length at which prefill is compute-bound."""


def curves_together(
    alone: Sequence[SpeedCurve], n_seqs: int, weights_ratio: float = 1.0
) -> tuple[SpeedCurve, ...]:
    """Return the latency of steps of `n_seqs` sequences and the time of their prompts together, from those of one.

    A step is at best one reading of the weights and one of every cache, t(1) + n_seqs (t(n) - t(1)), and at worst the
    steps of the sequences one after the other. In between, reading the weights takes `weights_ratio` t(1), as the
    sequences of a mixture use different experts (`Placement.weights_ratio`), or as long as computing `n_seqs` tokens of
    a prompt if that is longer; without a known prompt, the step is the geometric mean of that and the worst. The low
    end of a step lets all sequences use the same experts, as no router is known to need more.

    t(1) is that of the most reliable curve that begins there; without any, the caches count as the whole step.
    """
    first = next((each.step_ms[0][1] for each in alone if each.step_ms[0][0] == 1), None)
    return tuple(_together(each, n_seqs, weights_ratio, first) for each in alone)


def _together(curve: SpeedCurve, n_seqs: int, weights_ratio: float, first: Estimate | None) -> SpeedCurve:
    position, own = curve.step_ms[0]
    begins_at_1 = position == 1
    first = own if begins_at_1 else first or Estimate(0.0, 0.0, 0.0)
    prompt, weights_ms = curve.prefill_ms_at(_PROMPT), weights_ratio * first.value

    def of_all(step: Estimate) -> Estimate:
        read = weights_ms + n_seqs * max(0.0, step.value - first.value)
        at_worst, low = n_seqs * step.value, step.low  # another curve's t(1) is no bound of this one's
        if begins_at_1:
            low = first.low + n_seqs * max(0.0, step.low - first.low)
        computed = math.sqrt(read * at_worst)
        if prompt is not None:
            computed = read + max(0.0, n_seqs * prompt.value / _PROMPT - weights_ms)
        return Estimate(min(max(computed, read), at_worst), low, n_seqs * step.high)

    return replace(
        curve,
        basis="published" if curve.basis == "published" else "scaled",
        source=f"{curve.source}, of one user",
        step_ms=tuple((n, of_all(step)) for n, step in curve.step_ms),
        prefill_ms=tuple((n, ms.plus(ms, n_seqs - 1)) for n, ms in curve.prefill_ms),
    )
