"""How far correlated noise may have moved an estimate: its energy at the lowest frequencies, and Student's t.

What biases a mean or a line is noise at the lowest frequencies; it is estimated as the mean energy of the residuals
along the few slowest cosines, and the error follows Student's t with as many degrees of freedom. Source: Sun (2011),
"Robust trend inference with series variance estimator and testing-optimal smoothing parameter", Journal of Econometrics
164; Müller (2007), "A theory of robust long-run variance estimation", ibid. 141.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ggbench.stats.samples import Floats

FREEDOM = 4
"""Number of low-frequency directions that estimate the noise. Few keep the interval valid under long correlation, at a
third more width than with known noise.
"""

_Z_95 = 1.959963984540054
_T_95_FEW = (math.inf, 12.706205, 4.302653, 3.182446, 2.776445)
"""Student's two-sided 95 % points for 0 to 4 degrees of freedom, where the expansion in `t_95` is inaccurate."""


def slow_waves(n: int, count: int) -> Floats:
    """Return cosines of 1 to `count` half periods at half steps: orthogonal to a constant and each other, with norm
    n / 2.
    """
    return np.cos(np.outer(np.pi * np.arange(1, count + 1), (np.arange(n) + 0.5) / n))


def spread(estimates: Sequence[float], variances: Sequence[float]) -> float:
    """Return the noise that would explain the differences between repetitions, given each estimate's variance per unit
    of noise.
    """
    if len(estimates) < 2:
        return 0.0
    weight = 1 / np.array(variances)
    centred = np.array(estimates) - np.average(estimates, weights=weight)
    return float(weight @ centred**2) / (len(estimates) - 1)


def half_width(noise: float, spread: float, n_repetitions: int, freedom: int) -> float:
    """Return Student's t times the root of the noise plus the excess spread between repetitions.

    `freedom` is that of `noise`; with an excess, the degrees of freedom are after Satterthwaite (1946), "An approximate
    distribution of estimates of variance components", Biometrics Bulletin 2.
    """
    excess = max(0.0, spread - noise)
    total = noise + excess
    if total <= 0:
        return 0.0
    if excess:
        freedom = int(total**2 / (noise**2 / freedom + excess**2 / (n_repetitions - 1)))
    return t_95(max(1, freedom)) * math.sqrt(total)


def t_95(freedom: int) -> float:
    """Return Student's two-sided 95 % point; Abramowitz & Stegun (1964), 26.7.5, good to 0.001 from 5 degrees of
    freedom.
    """
    if freedom < len(_T_95_FEW):
        return _T_95_FEW[freedom]
    z = _Z_95
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )
