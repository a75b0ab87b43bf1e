"""Student's t for any probability: a race spends its error over many looks, so it needs points far out in the tail.

SciPy has it too, at 100 MB installed for this one function.
"""

from __future__ import annotations

import math
from statistics import NormalDist


def t_point(tail: float, freedom: int) -> float:
    """Return the point beyond which, on either side together, a share `tail` of Student's distribution lies.

    Source: G. W. Hill, Algorithm 396, Communications of the ACM 13 (1970) 619; six digits for 5 degrees of freedom and
    more, four below. Raises ValueError for a tail outside 0 to 1 and for less than one degree of freedom.
    """
    if not 0 < tail <= 1 or freedom < 1:
        raise ValueError(f"no such point: tail {tail}, {freedom} degrees of freedom")
    if freedom == 1:
        return 1 / math.tan(tail * math.pi / 2)
    if freedom == 2:
        return math.sqrt(2 / (tail * (2 - tail)) - 2)
    n = float(freedom)
    a = 1 / (n - 0.5)
    b = 48 / (a * a)
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * math.sqrt(a * math.pi / 2) * n
    y = (d * tail) ** (2 / n)
    if y <= 0.05 + a:
        y = ((1 / (((n + 6) / (n * y) - 0.089 * d - 0.822) * (n + 2) * 3) + 0.5 / (n + 4)) * y - 1) * (n + 1)
        return math.sqrt(n * (y / (n + 2) + 1 / ((d * tail) ** (2 / n))))
    x = NormalDist().inv_cdf(tail / 2) if tail < 1 else 0.0
    y = x * x
    if n < 5:
        c += 0.3 * (n - 4.5) * (x + 0.6)
    c = (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b + c
    y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
    return math.sqrt(n * math.expm1(a * y * y))
