"""`ggbench forecast`: what it shows without measuring, and what it refuses."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ggbench.engines import protocol
from ggbench.engines.contract import Request
from ggbench.engines.endings import Ending, OutOfMemory
from ggbench.runs.store.database import Store
from tests.cli.conftest import FakeMachine, Run


@pytest.fixture(autouse=True)
def _no_gpu(machine: FakeMachine) -> FakeMachine:
    return machine


def test_without_measuring_the_bound_is_shown(ggbench: Run, machine: FakeMachine, tiny_twin: Path) -> None:
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


@pytest.mark.usefixtures("unmeasured")
def test_without_measuring_not_even_the_bandwidth_is_measured(ggbench: Run, tiny_twin: Path) -> None:
    ran = ggbench("forecast", tiny_twin, "--no-measure")
    assert ran.code == 0
    assert "no speed is known without measuring" in ran.err


def test_what_was_forecast_is_known(ggbench: Run, machine: FakeMachine, tiny_twin: Path) -> None:
    measured = ggbench("forecast", tiny_twin, "--json")
    assert measured.code == 0
    assert "removed after" in measured.err
    n_workers = len(machine.workers)
    known = ggbench("forecast", tiny_twin, "--no-measure", "--json")
    assert len(machine.workers) == n_workers
    assert known.json["basis"] == measured.json["basis"]
    assert known.json["tok_s"] == pytest.approx(measured.json["tok_s"])
    shown = ggbench("results", "show", measured.json["run_id"], "--json")
    assert shown.json["tok_s"] == measured.json["tok_s"]


def test_a_bench_shows_what_is_expected_of_a_quant_that_failed(
    ggbench: Run, machine: FakeMachine, tiny_twin: Path
) -> None:
    assert ggbench("forecast", tiny_twin).code == 0
    (row,) = ggbench("bench", tiny_twin, "-n", "300", "--json").json["rows"]
    assert row["expected"] is None
    with Store.open() as store:
        (decode,) = store.list_runs(kind="decode")
        store.delete_run(decode.run_id)
    machine.answers.update(dict.fromkeys(range(9), _starve))
    (row,) = ggbench("bench", tiny_twin, "-n", "300", "--json").json["rows"]
    assert (row["outcome"], row["tok_s"]) == ("out_of_memory", None)
    assert row["expected"]["basis"] == "a twin of all 2 layers"
    low, high = row["expected"]["tok_s_ci95"]
    assert low < row["expected"]["tok_s"] < high
    assert "expected" in ggbench("bench", tiny_twin, "-n", "300").out


def _starve(_request: Request) -> Iterator[protocol.Message | Ending]:
    yield OutOfMemory("load", "out of memory")
