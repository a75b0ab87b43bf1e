"""Fit times that are sums of costs with pooled terms, for scripts/fit_speeds.

The logarithm of a time has an error of Student's t distribution, since some published rows are wrong by much, and
one that all rows of its place share. The terms of a group are normal. All spreads are those of the largest evidence
around the mode (Laplace's approximation). Sources: D. J. C. MacKay, Neural Computation 4 (1992) 415, for the spreads;
K. L. Lange et al., J. Am. Stat. Assoc. 84 (1989) 881, for the errors.
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
_BEFORE, _N_BEFORE = 0.15, 2.0
"""Spread of a group before any row is seen, and as how many terms that counts."""
_SAYS_NOTHING = 0.95
"""Share of its group's variance up to which a term was found."""
_LEAST_LEFT = 0.2
"""Share of the rows that the terms leave at least for the errors' scale."""
_MOST_ROUNDS, _STEADY = 40, 0.02
"""Rounds at most, and the change of every spread, as a share, below which a fit has ended."""
EXPECTED = {"read": 0.35, "kv": 0.6, "host": 0.3, "cpu": 0.0, "layer": 2.0, "compute": 0.9, "link": 0.0}
"""Means of the terms before any row is seen; their spread is `_LOOSE`, so that one row outweighs them."""
SPREAD_ONLY = ("machine",)
"""Groups of which a prediction knows only the spread: the CPUs of the rows."""


class SpeedFit:
    """Coefficients of rows, each with its costs, its time and its place, such as `older place=...`."""

    def __init__(
        self, costs: Sequence[Sequence[Cost]], times_ms: Sequence[float], places: Sequence[str]
    ) -> None:
        self.terms = sorted({term for row in costs for cost in row for term in cost.terms})
        index = {term: number for number, term in enumerate(self.terms)}
        every = [(row, cost) for row, parts in enumerate(costs) for cost in parts]
        self._row_of_cost = np.array([row for row, _ in every])
        self._least = np.log([cost.least_ms for _, cost in every])
        entries = [(number, index[term]) for number, (_, cost) in enumerate(every) for term in cost.terms]
        self._cost, self._term = np.array(entries).T
        self._slot = self._row_of_cost[self._cost] * len(self.terms) + self._term
        self._logs = np.log(times_ms)
        self._groups = [group_of(term) for term in self.terms]
        self._pooled = {
            group: np.array([each == group for each in self._groups])
            for group in sorted({group_of(term) for term in self.terms if "=" in term})
        }
        self._mean = np.array([EXPECTED.get(term, 0.0) for term in self.terms])
        names = sorted(set(places))
        self._at = np.array([[place == name for place in places] for name in names], dtype=float)
        self._place_groups = [group_of(name) for name in names]
        self.spreads = dict.fromkeys(self._groups, _LOOSE) | dict.fromkeys(
            (*self._pooled, *self._place_groups), _BEFORE
        )
        self.values, self.scale = self._mean.copy(), 0.1
        self._places = np.zeros(len(names))

    def run(self) -> SpeedFit:
        """Find values and spreads in turn until the spreads stay."""
        for _ in range(_MOST_ROUNDS):
            before = dict(self.spreads)
            self._find_values()
            self._find_spreads()
            if all(abs(math.log(self.spreads[group] / before[group])) < _STEADY for group in before):
                break
        return self

    def _predicted(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the logarithms of the times, and their derivatives by the terms."""
        n_costs, n_rows = len(self._least), len(self._logs)
        of_costs = np.bincount(self._cost, self.values[self._term], n_costs)
        ms = np.exp(self._least + of_costs)
        total = np.bincount(self._row_of_cost, ms, n_rows)
        shares = (ms / total[self._row_of_cost])[self._cost]
        slopes = np.bincount(self._slot, shares, n_rows * len(self.terms))
        return np.log(total), slopes.reshape(n_rows, len(self.terms))

    def _weighted(self, columns: np.ndarray) -> np.ndarray:
        """Return the inverse covariance of the rows' errors with those of their places, times some columns."""
        scaled = columns / self._noise[:, None]
        return scaled - self._at.T @ (self._shrunk[:, None] * (self._at @ scaled)) / self._noise[:, None]

    def _find_values(self) -> None:
        """Move to the mode."""
        self._variances = self._squared(self._groups)
        of_places = self._squared(self._place_groups)
        for _ in range(8):
            predicted, slopes = self._predicted()
            errors, away = self._logs - predicted, self.values - self._mean
            self._errors = errors - self._at.T @ self._places
            self._noise = self.scale**2 * (_FREEDOM + (self._errors / self.scale) ** 2) / (_FREEDOM + 1)
            self._shrunk = 1 / (1 / of_places + self._at @ (1 / self._noise))
            self._places = self._shrunk * (self._at @ (errors / self._noise))
            self._weighted_slopes = self._weighted(slopes)
            inverse = slopes.T @ self._weighted_slopes + np.diag(1 / self._variances)
            step = np.linalg.solve(inverse, self._weighted_slopes.T @ errors - away / self._variances)
            self.values = self.values + np.clip(step, -0.5, 0.5)
            if np.abs(step).max() < 1e-2:
                break
        self._covariance = np.linalg.inv(inverse)

    def _find_spreads(self) -> None:
        """Set each spread to what the rows found of its terms: squares by the number of terms that they determine."""
        found = 1 - np.diag(self._covariance) / self._variances
        squares = (self.values - self._mean) ** 2
        for group, members in self._pooled.items():
            self._set_spread(group, squares[members], found[members])
        of_rows = self._at @ (1 / self._noise)
        within = self._at @ self._weighted_slopes
        of_terms = (within @ self._covariance * within).sum(1)
        places = self._squared(self._place_groups) * (of_rows * (1 - self._shrunk * of_rows) - of_terms)
        for group in sorted(set(self._place_groups)):
            members = np.array([each == group for each in self._place_groups])
            self._set_spread(group, self._places[members] ** 2, places[members])
        weights = (_FREEDOM + 1) / (_FREEDOM + (self._errors / self.scale) ** 2)
        n_rows = len(self._logs)
        n_left = max(n_rows - found.sum() - places.sum(), _LEAST_LEFT * n_rows)
        self.scale = math.sqrt(float(weights @ self._errors**2) / n_left)

    def _squared(self, groups: Sequence[str]) -> np.ndarray:
        return np.array([self.spreads[group] for group in groups]) ** 2

    def _set_spread(self, group: str, squares: np.ndarray, found: np.ndarray) -> None:
        self.spreads[group] = math.sqrt((squares.sum() + _N_BEFORE * _BEFORE**2) / (found.sum() + _N_BEFORE))

    def model(self) -> SpeedModel:
        """Return what the program needs: without the terms of places, whose spread becomes part of the residual."""
        kept = [
            index
            for index, group in enumerate(self._groups)
            if group not in SPREAD_ONLY and self._is_found(index)
        ]
        covariance = np.round(self._covariance[np.ix_(kept, kept)] / COVARIANCE_UNIT).astype(int)
        variance = self.scale**2 * _FREEDOM / (_FREEDOM - 2) + self.spreads.get("place", 0.0) ** 2
        return SpeedModel(
            terms=tuple(self.terms[index] for index in kept),
            values=tuple(float(self.values[index]) for index in kept),
            covariance=tuple(tuple(map(int, row[: number + 1])) for number, row in enumerate(covariance)),
            spreads={
                group: spread for group, spread in self.spreads.items() if group not in self._place_groups
            },
            residual=math.sqrt(variance),
        )

    def _is_found(self, index: int) -> bool:
        """Return whether the rows say more of a term than that it is of its group."""
        spread = self.spreads[self._groups[index]]
        is_loose = self._covariance[index, index] > _SAYS_NOTHING * spread**2
        return not (is_loose and abs(self.values[index]) < (1 - _SAYS_NOTHING) * spread)
