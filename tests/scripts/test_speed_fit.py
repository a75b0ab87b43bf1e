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


def test_one_device_unlike_all_others_does_not_change_what_is_expected_of_them() -> None:
    """Its rows take thrice as long: that is its own term, and the spread of the others stays."""
    rows = _planted(1, N_DEVICES)
    outlier = "read:device=1.0"
    odd = [(costs, 3 * ms if outlier in costs[0].terms else ms) for costs, ms in rows]
    models = []
    for each in (rows, odd):
        places = [costs[0].terms[1].replace("read:device", "place") for costs, _ in each]
        models.append(SpeedFit([costs for costs, _ in each], [ms for _, ms in each], places).run().model())
    usual, changed = ([Cost(10.0, ("read", "read:device=new"))], [Cost(10.0, ("read", outlier))])
    assert models[1].predict(usual).value == pytest.approx(models[0].predict(usual).value, rel=0.03)
    assert models[1].predict(changed).value > 2 * models[0].predict(changed).value
