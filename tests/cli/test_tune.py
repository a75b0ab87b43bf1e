"""`ggbench tune` on planted machines, and what it refuses."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ggbench.engines import protocol
from ggbench.engines.contract import Request
from ggbench.engines.endings import Crashed, Ending
from ggbench.engines.llama.config import MakeContext
from tests.cli.conftest import FakeMachine, Run
from tests.fakes.engine import obey
from tests.fakes.planted import PlantedMachine

TUNE = ("--depth", "0,4096", "--within", "5m")
SLOWER = {("threads", 1): 1.7, ("threads", 4): 1.3}
Plant = Callable[..., PlantedMachine]


@pytest.fixture
def plant(machine: FakeMachine) -> Iterator[Plant]:
    with contextlib.ExitStack() as stack:

        def planted(**what: object) -> PlantedMachine:
            made = PlantedMachine(**{"seed": 7, "effects": SLOWER, "noise": 0.005, **what})  # type: ignore[arg-type]
            machine.answers.update(dict.fromkeys(range(1000), made.answer))
            stack.enter_context(made.clocked())
            return made

        yield planted


def test_the_planted_settings_are_found(ggbench: Run, plant: Plant, tiny_twin: Path) -> None:
    plant(at_depth={("flash_attn", "off"): 0.5})
    ran = ggbench("tune", tiny_twin, *TUNE, "--json")
    assert ran.code == 0, ran.err
    found = ran.json
    assert found["schema"] == "ggbench.tune/2"
    assert (found["best"], found["has_gain"]) == ("-fa off", True)
    low, high = found["ratio_ci95"]
    assert 1.3 < low <= found["ratio"] <= high
    assert found["ratio"] == pytest.approx(2**0.5, rel=0.02)
    rows = found["run"]["result"]["candidates"]
    assert [len(each["times_ms"]) for each in rows] == [2] * 4
    assert rows[3]["speed"] == pytest.approx(1 / 1.7, rel=0.05)
    assert "-fa off" in found["llama_server"] and str(tiny_twin) in found["llama_server"]

    shown = ggbench("results", "show", found["run_id"])
    text, command, _, head, *rows = shown.out.splitlines()
    assert text.startswith("-fa off is 1.4") and command == found["llama_server"]
    assert head.startswith("options") and "decode at 4096 ms" in head
    assert [row.partition("  ")[0] for row in rows[:4]] == ["defaults", "-fa off", "-t 4", "-t 1"]
    assert ggbench("results", "show", found["run_id"], "--json").json["best"] == found["best"]
    assert "1.4" in ggbench("results").out


def test_where_nothing_is_faster_the_defaults_are_the_answer(ggbench: Run, plant: Plant, tiny_twin: Path) -> None:
    plant(effects={**SLOWER, ("flash_attn", "off"): 1.3})
    ran = ggbench("tune", tiny_twin, *TUNE, "--json")
    assert (ran.code, ran.json["best"], ran.json["has_gain"], ran.json["llama_server"]) == (0, None, False, None)
    assert ggbench("results", "show", 1).out.startswith("No gain found")


def test_the_first_round_alone_claims_no_gain(ggbench: Run, plant: Plant, tiny_twin: Path) -> None:
    plant(seed=3, effects={}, noise=0.05)
    ran = ggbench("tune", tiny_twin, *TUNE, "--json")
    assert max(each["speed"] for each in ran.json["run"]["result"]["candidates"]) > 1
    low, high = ran.json["ratio_ci95"]
    assert (ran.json["best"], low < 1 < high) == (None, True)
    assert "No gain found: the best, -" in ggbench("results", "show", 1).out


def test_a_candidate_that_crashes_is_a_row(ggbench: Run, plant: Plant, tiny_twin: Path) -> None:
    plant(at_depth={("flash_attn", "off"): 0.5}, fatal=("threads", 4))
    ran = ggbench("tune", tiny_twin, *TUNE, "--json")
    assert ran.code == 0, ran.err
    (row,) = (each for each in ran.json["run"]["result"]["candidates"] if each["setup"]["threads"] == 4)
    assert row["speed"] is None and row["reason"]
    assert ran.json["best"] == "-fa off"


def test_ctrl_c_keeps_the_first_round(ggbench: Run, plant: Plant, machine: FakeMachine, tiny_twin: Path) -> None:
    plant(
        at_depth={("flash_attn", "off"): 0.5}, before_each=lambda number: machine.cancel.set() if number == 36 else None
    )
    ran = ggbench("tune", tiny_twin, *TUNE, "--json")
    assert (ran.code, ran.json["best"], ran.json["ratio"]) == (130, None, None)
    assert all(each["speed"] for each in ran.json["run"]["result"]["candidates"])


def test_little_time_leaves_a_turn_of_all_and_four_of_the_best(ggbench: Run, plant: Plant, tiny_twin: Path) -> None:
    planted = plant(at_depth={("flash_attn", "off"): 0.5})
    ran = ggbench("tune", tiny_twin, "--depth", "0,4096", "--within", "1s", "--json")
    assert (ran.code, ran.json["best"]) == (0, "-fa off")
    assert planted.n_measured == 2 * (1 + 4 + 2 * 4), "two depths; a warm-up, a turn of four, four turns of two"


@pytest.mark.parametrize(
    "arguments",
    [("--depth", "many"), ("--within", "soon"), ("--plot",), ("--n-ctx", "1024")],
)
def test_bad_input_is_refused_in_two_lines(ggbench: Run, plant: Plant, tiny_twin: Path, arguments: list[str]) -> None:
    planted = plant()
    ran = ggbench("tune", tiny_twin, *arguments)
    assert (ran.code, ran.out, planted.n_measured) == (2, "", 0)
    assert len(ran.err.strip().splitlines()) == 2


def test_prompts_are_searched_for_too(ggbench: Run, plant: Plant, tiny_twin: Path) -> None:
    plant(effects={**SLOWER, ("n_ubatch", 128): 0.8})
    ran = ggbench("tune", tiny_twin, *TUNE, "--for", "both", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["best"] == "-ub 128"
    assert ran.json["ratio"] == pytest.approx(1.25, rel=0.03)
    assert "prefill at 0 ms" in ggbench("results", "show", 1).out


def test_a_model_that_does_not_fit_is_refused(ggbench: Run, plant: Plant, tiny_twin: Path) -> None:
    planted = plant()
    ran = ggbench("tune", tiny_twin, *TUNE, "--memory-limit", "2MiB")
    assert (ran.code, planted.n_measured) == (3, 0)


def test_a_crash_while_sizing_is_that_of_the_run(ggbench: Run, machine: FakeMachine, tiny_twin: Path) -> None:
    """Nothing is said of memory, e.g. where llama-cpp-python lacks a function."""

    def dies(request: Request) -> Iterator[protocol.Message | Ending]:
        if isinstance(request, MakeContext):
            yield Crashed("llama.cpp ended with exit status 1")
        else:
            yield from obey(request)

    machine.answers = dict.fromkeys(range(9), dies)
    ran = ggbench("tune", tiny_twin, *TUNE)
    assert ran.code == 6 and "ended with exit status 1" in ran.err
    assert "unexpected" not in ran.err and "--depth" not in ran.err
