"""Forecast how long a prompt and a decode of several sequences take, from those that ran."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace

from ggbench.experiments.speed.record import Case
from ggbench.stats.linefit import Moments
from ggbench.stats.samples import Floats, group_medians, stair

_TRUSTED_SHARE = 0.5
"""Of the positions seen with one sequence: a batch seen over fewer has the slope of one sequence, times its size."""


@dataclass(slots=True)
class CaseForecast:
    """What ran so far, and what follows from it for a case that did not.

    A prefill of B prompts of n tokens takes a + b B n + c B n², the last for attention, with no coefficient below zero;
    a step of a decode takes what W and B of its batch size say, W being inversely proportional to the batch size where
    it was not seen far enough. A batch size of which no step was seen takes as much longer than a smaller one as it is
    larger, which is the most that it can take.
    """

    least_slope_s: float = 0.0
    """What a position adds to a step of one sequence at least, as the memory's bandwidth allows no less."""
    _prompts: list[tuple[int, int, float]] = field(default_factory=list)
    """Tokens of a sequence, sequences, seconds."""
    _steps: dict[int, tuple[list[float], list[float]]] = field(default_factory=dict)
    """Positions and seconds, by the number of sequences."""

    def add_prompts(self, n_input: int, n_seqs: int, seconds: float) -> None:
        """Take in how long prompts of that length took, one for each sequence."""
        self._prompts.append((n_input, n_seqs, seconds))

    def add_steps(self, n_seqs: int, positions: Sequence[float], step_ns: Sequence[float]) -> None:
        """Take in steps of a decode."""
        known = self._steps.setdefault(n_seqs, ([], []))
        known[0].extend(positions)
        known[1].extend(each * 1e-9 for each in step_ns)

    def expected_s(self, case: Case) -> float | None:
        """Return how long prefill and decode of a case should take; None before anything of its kind has run."""
        prefill_s, decode_s = self.prefill_s(case.n_input, case.n_seqs), self._decode_s(case)
        return None if prefill_s is None or decode_s is None else prefill_s + decode_s

    def prefill_s(self, n_input: int, n_seqs: int = 1) -> float | None:
        """Return how long prompts of that length should take; None before any was read."""
        if not self._prompts:
            return None
        rows = np.array([_terms(n, seqs) for n, seqs, _ in self._prompts])
        seconds = np.array([each for *_, each in self._prompts])
        # Relative errors, so that short prompts decide the coefficient of what they cost and long ones the square's.
        coefficients = least_squares_above_zero(rows / seconds[:, None], np.ones_like(seconds))
        return float(_terms(n_input, n_seqs) @ coefficients)

    def _decode_s(self, case: Case) -> float | None:
        own = self._steps.get(case.n_seqs)
        if own is None:
            smaller = max((n_seqs for n_seqs in self._steps if n_seqs < case.n_seqs), default=None)
            if smaller is None:
                return None
            at_most = self._decode_s(replace(case, n_seqs=smaller))
            return None if at_most is None else at_most * case.n_seqs / smaller
        one = self._steps.get(1, own)
        line, line_of_one = _line(*own), _line(*one)
        slope = line.slope
        if max(own[0]) < _TRUSTED_SHARE * max(one[0]):
            slope = line_of_one.slope * case.n_seqs
        slope = max(slope, self.least_slope_s * case.n_seqs)
        middle = case.n_input + (case.n_gen + 1) / 2
        return case.n_gen * (line.mean_y + slope * (middle - line.mean_x))


def _terms(n_input: int, n_seqs: int) -> Floats:
    return np.array([1.0, n_seqs * n_input, n_seqs * float(n_input) ** 2])


def least_squares_above_zero(rows: Floats, values: Floats) -> Floats:
    """Return the coefficients of least squares among those that are not negative.

    Of a few coefficients every subset can be tried; with fewer rows than coefficients, only as many are used.
    """
    n = rows.shape[1]
    best, least = np.zeros(n), float(values @ values)
    for size in range(1, min(n, len(values)) + 1):
        for chosen in itertools.combinations(range(n), size):
            part, *_ = np.linalg.lstsq(rows[:, chosen], values, rcond=None)
            if (part < 0).any():
                continue
            found = np.zeros(n)
            found[list(chosen)] = part
            error = float(np.sum((rows @ found - values) ** 2))
            if error < least:
                best, least = found, error
    return best


def _line(positions: Sequence[float], seconds: Sequence[float]) -> Moments:
    """Return the line through the medians of steps of 256 positions, which an interrupted step does not bend."""
    x = np.asarray(positions, np.float64)
    stairs = stair(x)
    return Moments.of(group_medians(stairs, x).medians, group_medians(stairs, np.asarray(seconds)).medians)
