"""Fit times that are sums of costs with pooled terms, for scripts/fit_speeds.

The logarithm of a time has an error of Student's t distribution, since some published rows are wrong by much. The terms
of a group are normal; their spreads and the error's scale are found by expectation and maximization around the mode
(Laplace's approximation). Sources: N. M. Laird and J. H. Ware, Biometrics 38 (1982) 963, for the terms; K. L. Lange et
al., J. Am. Stat. Assoc. 84 (1989) 881, for the errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ggbench.expect.cost_model import COVARIANCE_UNIT, Cost, SpeedModel, group_of

_FREEDOM = 5.0
"""Degrees of freedom of the errors."""
_LOOSE = 0.5
"""Spread of a term that is alone in its group, so that it cannot be found."""
_LEAST_SPREAD = 0.02
_SAYS_NOTHING = 0.95
"""Share of its group's variance up to which a term was found."""
EXPECTED = {"read": 0.35, "kv": 0.6, "host": 0.4, "layer": 2.0, "compute": 0.9, "link": 0.0}
"""Means of the terms before any row is seen; their spread is `_LOOSE`, so that one row outweighs them."""
ELSEWHERE = ("place", "run")
"""Groups that a prediction cannot know: another machine with the device, another run."""
SPREAD_ONLY = ("host:machine", "host:quant")
"""Groups of which a prediction knows only the spread: the rows' CPUs, and quants, most of which one machine has."""
OLDER = ("older place", "older run")
"""The same of rows from before llama.cpp's current kernels, which differ more."""


class SpeedFit:
    """Coefficients of rows, each with its costs and its time."""

    def __init__(self, costs: Sequence[Sequence[Cost]], times_ms: Sequence[float]) -> None:
        self.terms = sorted({term for row in costs for cost in row for term in cost.terms})
        self._index = {term: index for index, term in enumerate(self.terms)}
        n_costs, n_rows = max(map(len, costs)), len(costs)
        self._design = np.zeros((n_costs, n_rows, len(self.terms)), dtype=np.float32)
        self._least = np.full((n_costs, n_rows), -60.0)
        for row, parts in enumerate(costs):
            for number, cost in enumerate(parts):
                self._least[number, row] = math.log(cost.least_ms)
                self._design[number, row, [self._index[term] for term in cost.terms]] = 1
        self._logs = np.log(times_ms)
        self._groups = [group_of(term) for term in self.terms]
        self._members = {
            group: np.array([each == group for each in self._groups]) for group in set(self._groups)
        }
        self._pooled = {term.partition("=")[0] for term in self.terms if "=" in term}
        self._mean = np.array([EXPECTED.get(term, 0.0) for term in self.terms])
        self.spreads = {group: 0.15 if group in self._pooled else _LOOSE for group in self._members}
        self.values, self.scale = self._mean.copy(), 0.1

    def start_from(self, other: SpeedFit) -> SpeedFit:
        """Begin where a fit of other rows ended."""
        for term, index in self._index.items():
            if term in other._index:
                self.values[index] = other.values[other._index[term]]
        self.spreads |= {group: other.spreads[group] for group in self.spreads if group in other.spreads}
        self.scale = other.scale
        return self

    def run(self, n_rounds: int) -> SpeedFit:
        for _ in range(n_rounds):
            self._find_values()
            self._find_spreads()
        return self

    def _predicted(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the logarithms of the times, and their derivatives."""
        logs = self._least + self._design @ self.values.astype(np.float32)
        most = logs.max(0)
        times = np.exp(logs - most)
        total = times.sum(0)
        return most + np.log(total), np.einsum("kn,knp->np", times / total, self._design, optimize=True)

    def _find_values(self) -> None:
        """Move to the mode; rows are fewer than terms, so their covariance is inverted."""
        self._variances = np.array([self.spreads[group] for group in self._groups]) ** 2
        for _ in range(6):
            predicted, slopes = self._predicted()
            errors = self._logs - predicted
            noise = self.scale**2 * (_FREEDOM + (errors / self.scale) ** 2) / (_FREEDOM + 1)
            self._scaled = slopes * self._variances
            self._of_rows = self._scaled @ slopes.T
            self._gain = np.linalg.inv(self._of_rows + np.diag(noise))
            weighted = self._gain @ (errors + slopes @ (self.values - self._mean))
            step = np.clip(self._mean + self._scaled.T @ weighted - self.values, -0.5, 0.5)
            self.values = self.values + step
            if np.abs(step).max() < 1e-3:
                break

    def _find_spreads(self) -> None:
        errors = self._logs - self._predicted()[0]
        of_values = np.diag(self._of_rows) - (self._of_rows @ self._gain * self._of_rows).sum(1)
        weights = (_FREEDOM + 1) / (_FREEDOM + (errors / self.scale) ** 2)
        self.scale = max(
            0.01, math.sqrt(float(np.mean(weights * (errors**2 + np.minimum(of_values, self.scale**2)))))
        )
        squares = (self.values - self._mean) ** 2 + self._left()
        for group in self._pooled:
            members = self._members[group]
            self.spreads[group] = max(_LEAST_SPREAD, math.sqrt(float(squares[members].mean())))

    def _left(self) -> np.ndarray:
        """Return the variance of each term that the rows leave."""
        return self._variances - (self._gain @ self._scaled * self._scaled).sum(0)

    def model(self) -> SpeedModel:
        """Return what the program needs: without the terms of places, whose spread becomes part of the residual."""
        kept = [
            index for index, group in enumerate(self._groups) if group not in (*ELSEWHERE, *OLDER, *SPREAD_ONLY)
        ]
        left = self._left()
        kept = [index for index in kept if self._is_found(index, left[index])]
        scaled = self._scaled[:, kept]
        covariance = np.diag(self._variances[kept]) - scaled.T @ self._gain @ scaled
        covariance = np.round(covariance / COVARIANCE_UNIT).astype(int)
        variance = self.scale**2 * _FREEDOM / (_FREEDOM - 2)
        variance += sum(self.spreads.get(group, 0.0) ** 2 for group in ELSEWHERE)
        return SpeedModel(
            terms=tuple(self.terms[index] for index in kept),
            values=tuple(float(self.values[index]) for index in kept),
            covariance=tuple(tuple(map(int, row[: number + 1])) for number, row in enumerate(covariance)),
            spreads={group: spread for group, spread in self.spreads.items() if group not in ELSEWHERE},
            residual=math.sqrt(variance),
        )

    def _is_found(self, index: int, left: float) -> bool:
        """Return whether the rows say more of a term than that it is of its group; `left` is its variance."""
        spread = self.spreads[self._groups[index]]
        is_loose = left > _SAYS_NOTHING * spread**2
        return not (is_loose and abs(self.values[index]) < (1 - _SAYS_NOTHING) * spread)
