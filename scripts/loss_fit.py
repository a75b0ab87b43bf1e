"""A hierarchical model of logarithms of losses: effects that are shared are drawn towards their mean.

An observation is the sum of effects of its quant, family, size, model and text, each normal around zero with a spread
of its own, so that predictions have closed forms (C. E. Rasmussen and C. K. I. Williams, Gaussian Processes for Machine
Learning, 2006, chapters 2 and 5). The spreads are those that make the observations most probable.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Matrix: TypeAlias = NDArray[np.float64]
Spreads: TypeAlias = Mapping[str, float]
_DOUBT = 1.0
"""Spread of the logarithm of a spread around its first guess, as few observations hardly determine some of them."""


class Kind(NamedTuple):
    """What is known of an observation, or of what is to be predicted; an empty text is like no other."""

    model: str
    family: str
    billions: float
    quant: str
    plain: str
    """The quant that a mixture is named after; the quant itself if it is none."""
    bits: float
    """Bits per weight of the plain quant."""
    text: str = ""
    by_perplexity: bool = False


Terms: TypeAlias = Callable[[Sequence[Kind], Sequence[Kind]], Mapping[str, Matrix]]
"""Return the covariance of two lists of observations for each effect of a spread of 1."""


class Fit(NamedTuple):
    terms: Terms
    noise: Terms
    """Effects of an observation that a prediction does not share: its text, its maker."""
    kinds: Sequence[Kind]
    values: Matrix
    mean: float
    spreads: Spreads

    def predict(self, wanted: Sequence[Kind]) -> tuple[Matrix, Matrix]:
        """Return the medians, and the spreads of what one more observation in another text would show."""
        shared = _weighted(self.terms(wanted, self.kinds), self.spreads)
        whole = _weighted(self.terms(self.kinds, self.kinds), self.spreads)
        whole += _weighted(self.noise(self.kinds, self.kinds), self.spreads)
        weights = np.linalg.solve(whole, shared.T)
        own = _weighted(self.terms(wanted, wanted), self.spreads) + _weighted(
            self.noise(wanted, wanted), self.spreads
        )
        variances = np.diag(own) - np.einsum("ij,ji->i", shared, weights)
        return self.mean + weights.T @ self.values, np.sqrt(variances)


def fit(terms: Terms, noise: Terms, kinds: Sequence[Kind], logs: Sequence[float], guess: Spreads) -> Fit:
    """Return the fit whose spreads are the most probable, found by a search along each."""
    mean = float(np.mean(logs))
    values = np.array(logs) - mean
    parts = {**terms(kinds, kinds), **noise(kinds, kinds)}

    def misfit(spreads: Spreads) -> float:
        factor = np.linalg.cholesky(_weighted(parts, spreads))
        scaled = np.linalg.solve(factor, values)
        doubts = sum((math.log(spreads[name] / guess[name]) / _DOUBT) ** 2 for name in guess)
        return float(scaled @ scaled / 2 + np.log(np.diag(factor)).sum() + doubts / 2)

    spreads, best, step = dict(guess), misfit(guess), 0.5
    while step > 1 / 16:
        before = best
        for name, sign in itertools.product(guess, (1, -1)):
            tried = {**spreads, name: spreads[name] * math.exp(sign * step)}
            found = misfit(tried)
            if found < best:
                best, spreads = found, tried
        if best > before - 0.01:
            step /= 2
    return Fit(terms, noise, kinds, values, mean, spreads)


def _weighted(parts: Mapping[str, Matrix], spreads: Spreads) -> Matrix:
    return np.tensordot([spreads.get(name, 1.0) ** 2 for name in parts], np.stack([*parts.values()]), axes=1)


def same(one: Sequence[object], other: Sequence[object]) -> Matrix:
    """Return 1 where two names are equal and not empty."""
    return np.array([[float(bool(a) and a == b) for b in other] for a in one])


def product(one: Sequence[float], other: Sequence[float]) -> Matrix:
    return np.outer(one, other)
