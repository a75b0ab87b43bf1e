"""Fit times that are sums of costs with pooled terms, for scripts/fit_speeds.

The logarithm of a time has an error of Student's t distribution, since some published rows are wrong by much, and
one that all rows of its place share. So do the terms of a group, as one card is unlike all others and tells nothing of
them. All spreads are those of the largest evidence around the mode (Laplace's approximation). Sources: D. J. C. MacKay,
Neural Computation 4 (1992) 415, for the spreads; K. L. Lange et al., J. Am. Stat. Assoc. 84 (1989) 881, for Student's
distribution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ggbench.expect.cost_model import COVARIANCE_UNIT, Cost, SpeedModel, group_of

_FREEDOM, _TERM_FREEDOM = 5.0, 1.0
"""Degrees of freedom of the errors and of the terms of a group."""
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
        rows = sorted(range(len(costs)), key=lambda row: places[row])
        self.terms = sorted({term for row in costs for cost in row for term in cost.terms})
        index = {term: number for number, term in enumerate(self.terms)}
        every = [(number, cost) for number, row in enumerate(rows) for cost in costs[row]]
        self._row_of_cost = np.array([row for row, _ in every])
        self._least = np.log([cost.least_ms for _, cost in every])
        entries = [(number, index[term]) for number, (_, cost) in enumerate(every) for term in cost.terms]
        self._cost, self._term = np.array(entries).T
        self._slot = self._row_of_cost[self._cost] * len(self.terms) + self._term
        self._logs = np.log([times_ms[row] for row in rows])
        names, self._starts, self._place = np.unique(
            [places[row] for row in rows], return_index=True, return_inverse=True
        )
        self._groups = [group_of(term) for term in self.terms]
        self._place_groups = [group_of(name) for name in names]
        self._pooled = {
            group: np.array([each == group for each in self._groups])
            for group in sorted({group_of(term) for term in self.terms if "=" in term})
        }
        self._is_pooled = np.array(["=" in term for term in self.terms])
        self._mean = np.array([EXPECTED.get(term, 0.0) for term in self.terms])
        self.spreads = dict.fromkeys(self._groups, _LOOSE) | dict.fromkeys(
            (*self._pooled, *self._place_groups), _BEFORE
        )
        self.values, self.scale = self._mean.copy(), 0.1
        self._of_places = np.zeros(len(names))

    def run(self) -> SpeedFit:
        """Find values and spreads in turn until they stay."""
        for _ in range(_MOST_ROUNDS):
            before = dict(self.spreads)
            step = self._find_values()
            self._find_spreads()
            changes = [abs(math.log(self.spreads[group] / before[group])) for group in before]
            if max(step, *changes) < _STEADY:
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

    def _sums(self, of_rows: np.ndarray) -> np.ndarray:
        """Return the sums over the rows of each place."""
        return np.add.reduceat(of_rows, self._starts)

    def _find_values(self) -> float:
        """Move towards the mode; return the largest step."""
        predicted, slopes = self._predicted()
        errors, away = self._logs - predicted, self.values - self._mean
        self._errors = errors - self._of_places[self._place]
        self._variances = self._squared(self._groups)
        of_pooled = _student(away, self._variances, _TERM_FREEDOM)
        self._variances = np.where(self._is_pooled, of_pooled, self._variances)
        noise = _student(self._errors, self.scale**2, _FREEDOM)
        self._rows_say = self._sums(1 / noise)
        self._left = 1 / (1 / self._squared(self._place_groups) + self._rows_say)
        self._of_places = self._left * self._sums(errors / noise)
        weighted = slopes / noise[:, None]
        shared = self._left[:, None] * self._sums(weighted)
        weighted -= shared[self._place] / noise[:, None]
        self._within = self._sums(weighted)
        inverse = slopes.T @ weighted + np.diag(1 / self._variances)
        self._covariance = np.linalg.inv(inverse)
        step = self._covariance @ (weighted.T @ errors - away / self._variances)
        self.values = self.values + np.clip(step, -0.5, 0.5)
        return float(np.abs(step).max())

    def _find_spreads(self) -> None:
        """Set each spread to what the rows found of its terms: squares by the number of terms that they determine."""
        found = 1 - np.diag(self._covariance) / self._variances
        squares = (self.values - self._mean) ** 2 * self._squared(self._groups) / self._variances
        for group, members in self._pooled.items():
            self._set_spread(group, squares[members], found[members])
        of_terms = (self._within @ self._covariance * self._within).sum(1)
        of_rows = self._rows_say * (1 - self._left * self._rows_say)
        places = self._squared(self._place_groups) * (of_rows - of_terms)
        for group in sorted(set(self._place_groups)):
            members = np.array([each == group for each in self._place_groups])
            self._set_spread(group, self._of_places[members] ** 2, places[members])
        n_rows = len(self._logs)
        n_left = max(n_rows - found.sum() - places.sum(), _LEAST_LEFT * n_rows)
        of_normal = self._errors**2 * self.scale**2 / _student(self._errors, self.scale**2, _FREEDOM)
        self.scale = math.sqrt(float(of_normal.sum()) / n_left)

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
            spreads=dict.fromkeys(set(self._groups) - set(self._pooled), _LOOSE)
            | {group: self._deviation(members) for group, members in self._pooled.items()},
            residual=math.sqrt(variance),
        )

    def _deviation(self, members: np.ndarray) -> float:
        """Return the standard deviation of the terms of a group, with those far from all others."""
        n_found = (1 - np.diag(self._covariance) / self._variances)[members].sum()
        return math.sqrt(
            (float((self.values[members] ** 2).sum()) + _N_BEFORE * _BEFORE**2) / (n_found + _N_BEFORE)
        )

    def _is_found(self, index: int) -> bool:
        """Return whether the rows say more of a term than that it is of its group."""
        is_loose = self._covariance[index, index] > _SAYS_NOTHING * self._variances[index]
        return not (
            is_loose and abs(self.values[index]) < (1 - _SAYS_NOTHING) * self.spreads[self._groups[index]]
        )


def _student(deviations: np.ndarray, variances: np.ndarray | float, freedom: float) -> np.ndarray:
    """Return the variances of the normal distributions that stand for Student's at these deviations."""
    return (freedom * variances + deviations**2) / (freedom + 1)
