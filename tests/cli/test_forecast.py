"""`ggbench forecast`, and what it makes known."""

from pathlib import Path

import pytest

from tests.cli.conftest import FakeMachine, Run


@pytest.fixture(autouse=True)
def _no_gpu(machine: FakeMachine) -> FakeMachine:
    return machine


def test_what_was_forecast_is_known_to_plan(ggbench: Run, machine: FakeMachine, tiny_twin: Path) -> None:
    measured = ggbench("forecast", tiny_twin, "--json")
    assert measured.code == 0
    assert "removed after" in measured.err
    n_workers = len(machine.workers)
    (row,) = ggbench("plan", tiny_twin, "--no-measure", "--json").json["rows"]
    assert len(machine.workers) == n_workers
    assert (row["expected"]["basis"], row["expected"]["speed_basis"]) == (measured.json["basis"], "forecast")
    shown = ggbench("results", "show", measured.json["run_id"], "--json")
    assert shown.json["run"]["result"] == measured.json["run"]["result"]
