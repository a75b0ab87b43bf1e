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
    assert "writes " in measured.err
    n_workers = len(machine.workers)
    (row,) = ggbench("plan", tiny_twin, "--json").json["rows"]
    assert len(machine.workers) == n_workers
    assert (row["expected"]["source"], row["expected"]["basis"]) == (measured.json["basis"], "forecast")
    shown = ggbench("results", "show", measured.json["run_id"], "--json")
    assert shown.json["run"]["result"] == measured.json["run"]["result"]


def test_several_quants_are_rows(ggbench: Run, tiny_twin: Path, tmp_path: Path) -> None:
    for quant in ("q8_0", "q4_0"):
        (tmp_path / f"model-{quant}.gguf").symlink_to(tiny_twin)
    rows = ggbench("forecast", tmp_path, "--json").json["rows"]
    assert [row["basis"] for row in rows] == ["a twin of all 2 layers"] * 2
    assert all(low <= row["b_ms"] <= high for row in rows for low, high in [row["b_ci95"]])
