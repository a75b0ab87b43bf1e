"""Percentiles and rate of step timings, for a single figure instead of a line."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggbench.records.speed import LatencySummary


def summarize(step_ns: npt.ArrayLike, sample_ns: npt.ArrayLike | None = None) -> LatencySummary | None:
    """Return p50, p95 and p99 in ms, interpolated between samples, and tokens per second as samples over their sum.

    `step_ns` are the decode steps and `sample_ns` the sampler's times, both in ns; non-finite values are dropped. None
    where no time was measured.
    """
    steps = np.asarray(step_ns, dtype=np.float64)
    steps = steps[np.isfinite(steps)]
    total_ns = float(steps.sum())
    if total_ns <= 0:
        return None
    p50_ns, p95_ns, p99_ns = (float(value) for value in np.percentile(steps, (50, 95, 99)))
    sampler = np.asarray([] if sample_ns is None else sample_ns, dtype=np.float64)
    sampler = sampler[np.isfinite(sampler)]
    return LatencySummary(
        p50_ms=p50_ns * 1e-6,
        p95_ms=p95_ns * 1e-6,
        p99_ms=p99_ns * 1e-6,
        tok_s=len(steps) / total_ns * 1e9,
        sample_p50_ms=float(np.median(sampler)) * 1e-6 if len(sampler) else None,
    )
