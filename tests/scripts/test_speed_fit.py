"""The fit of others' rows finds what was planted, and its intervals hold for devices that it has not seen."""

import math

import numpy as np
import pytest

from ggbench.expect.cost_model import Cost
from scripts.speed_fit import SpeedFit

N_DEVICES, N_ROWS = 60, 6
SHARE, SPREAD, ERROR = 0.4, 0.1, 0.05


def _planted(seed: int, n_devices: int) -> list[tuple[list[Cost], float]]:
    """Return costs and times of rows whose devices differ by SPREAD, each row by ERROR."""
    random = np.random.default_rng(seed)
    rows = []
    for device in range(n_devices):
        own = random.normal(0, SPREAD)
        for _ in range(N_ROWS):
            read_ms, n_layers = random.uniform(5, 40), random.uniform(0.2, 0.4)
            ms = read_ms * math.exp(SHARE + own) + n_layers * math.exp(2.0)
            terms = ("read", f"read:device={seed}.{device}")
            costs = [Cost(read_ms, terms), Cost(n_layers, ("layer",))]
            rows.append((costs, ms * math.exp(random.normal(0, ERROR))))
    return rows


def test_the_fit_finds_what_was_planted() -> None:
    rows = _planted(1, N_DEVICES)
    places = [f"place={number % 40}" for number in range(len(rows))]
    model = SpeedFit([costs for costs, _ in rows], [ms for _, ms in rows], places).run().model()
    assert model.values[model.terms.index("read")] == pytest.approx(SHARE, abs=0.06)
    others = math.hypot(model.spreads["read:device"], model.residual)
    assert others == pytest.approx(math.hypot(SPREAD, ERROR), rel=0.35)
    unseen = [(model.predict(costs), ms) for costs, ms in _planted(2, N_DEVICES)]
    covered = sum(found.low <= ms <= found.high for found, ms in unseen) / len(unseen)
    assert 0.88 <= covered <= 0.995
