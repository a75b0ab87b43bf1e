"""`ggbench forecast`: what it shows without measuring, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import FakeMachine, Run


@pytest.fixture(autouse=True)
def _no_gpu(machine: FakeMachine) -> FakeMachine:
    return machine


def test_without_measuring_the_bound_is_shown(ggbench: Run, machine: FakeMachine, tiny_twin: Path) -> None:
    """Of a model of which nothing is known; no engine is started, and nothing is stored."""
    ran = ggbench("forecast", tiny_twin, "--no-measure", "--bandwidth", "20GB/s", "--json")
    assert ran.code == 0
    document = ran.json
    assert document["schema"] == "ggbench.forecast/1"
    assert document["basis"] == "bound"
    assert document["b_ci95"] == [document["b_ms"], None]
    assert document["tok_s_ci95"]["1"] == [0.0, document["tok_s"]["1"]]
    assert document["run_id"] is None
    assert not machine.workers
    assert "--no-measure" in document["command"]
    text = ggbench("forecast", tiny_twin, "--no-measure", "--bandwidth", "20GB/s")
    assert text.code == 0
    assert "≤" in text.out and "≥" in text.out


def test_without_measuring_not_even_the_bandwidth_is_measured(ggbench: Run, tiny_twin: Path) -> None:
    """So nothing may be known, which is no error."""
    ran = ggbench("forecast", tiny_twin, "--no-measure")
    assert ran.code == 0
    assert "nothing is known of it without measuring" in ran.err


def test_what_was_forecast_is_known(ggbench: Run, machine: FakeMachine, tiny_twin: Path) -> None:
    """And shown again without an engine."""
    measured = ggbench("forecast", tiny_twin, "--json")
    assert measured.code == 0
    assert "removed after" in measured.err
    n_workers = len(machine.workers)
    known = ggbench("forecast", tiny_twin, "--no-measure", "--json")
    assert len(machine.workers) == n_workers
    assert known.json["basis"] == measured.json["basis"]
    assert known.json["tok_s"] == pytest.approx(measured.json["tok_s"])


def test_bad_input_is_refused_in_two_lines(ggbench: Run, tiny_twin: Path) -> None:
    """With the exit code of usage."""
    for arguments in (("forecast",), ("forecast", tiny_twin, "-c", "4096"), ("forecast", "nothing/here.gguf")):
        ran = ggbench(*arguments)
        assert ran.code in (2, 5), ran.err
        assert ran.out == ""
