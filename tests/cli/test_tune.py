"""`ggbench tune` on planted machines, what it refuses, and `--tuned` of the commands that measure."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.decisions.pick.drafts import speculate_command
from ggbench.engines.llama.config import MakeContext
from ggbench.runs.comparable import ThisMachine
from ggbench.runs.store.database import Store
from tests.cli.conftest import FakeMachine, Run
from tests.fakes.planted import PlantedMachine

TUNE = ("--depth", "0,4096", "--within", "5m")
SLOWER = {("threads", 1): 1.7, ("threads", 4): 1.3, ("threads", 3): 1.2, ("mmap", False): 1.1}
Plant = Callable[..., PlantedMachine]


@pytest.fixture
def plant(machine: FakeMachine) -> Iterator[Plant]:
    with contextlib.ExitStack() as stack:

        def planted(**what: object) -> PlantedMachine:
            made = PlantedMachine(7, **{"effects": SLOWER, "noise": 0.005, **what})  # type: ignore[arg-type]
            machine.answers.update(dict.fromkeys(range(1000), made.answer))
            stack.enter_context(made.clocked())
            return made

        yield planted


def contexts(machine: FakeMachine) -> list[MakeContext]:
    requests = [request for worker in machine.workers for request in worker.requests]
    return [each for each in requests if isinstance(each, MakeContext)]


def test_the_planted_settings_are_found_and_taken(
    ggbench: Run, plant: Plant, machine: FakeMachine, tiny_twin: Path, tmp_path: Path
) -> None:
    plant(at_depth={("flash_attn", "off"): 0.5})
    ran = ggbench("tune", tiny_twin, *TUNE, "--json")
    assert ran.code == 0, ran.err
    found = ran.json
    assert found["schema"] == "ggbench.tune/1"
    assert found["best"] == {"flash_attn": "off"}
    low, high = found["gain"]["4096"]["ci95"]
    assert low <= found["gain"]["4096"]["ratio"] <= high
    assert found["gain"]["4096"]["ratio"] == pytest.approx(2.0, rel=0.02)
    assert found["gain"]["0"]["ratio"] == pytest.approx(1.0, rel=0.02)
    states = {tuple(each["settings"].items()): each["state"] for each in found["candidates"]}
    assert states[()] == "baseline"
    assert states[("flash_attn", "off"),] == "best"
    assert states[("threads", 1),] == "dropped"
    assert "--flash-attn off" in found["commands"]["ggbench"]
    assert "-fa off" in found["commands"]["llama_server"] and "-fa off" in found["commands"]["llama_cli"]
    assert "OLLAMA_FLASH_ATTENTION=0" in found["commands"]["ollama"]
    assert found["n_measured"] > 20

    shown = ggbench("results", "show", found["run_id"], "--json").json
    assert shown["best"] == found["best"] and shown["state"] == "completed"
    picture, page = tmp_path / "race.svg", tmp_path / "race.html"
    assert ggbench("report", found["run_id"], "-o", picture).code == 0
    assert "flash_attn off" in picture.read_text() and "threads 1" in picture.read_text()
    assert ggbench("report", found["run_id"], "-o", page).code == 0
    assert "flash_attn off" in page.read_text()
    text = ggbench("results", "show", found["run_id"], "--plot").out
    for words in (
        "flash_attn off: 1.4",
        "times the speed of the defaults",
        "depth 4,096",
        "threads 1: round 1: 0.",
        "-fa off",
    ):
        assert words in text

    decoded = ggbench("decode", tiny_twin, "-n", "300", "--tuned", "--json")
    assert decoded.code == 0, decoded.err
    assert f"flash_attn off, as run {found['run_id']} found" in decoded.err
    assert decoded.json["config"]["flash_attn"] == "off"
    assert {each.setup.flash_attn for each in contexts(machine)} == {"off"}
    own = ggbench("decode", tiny_twin, "-n", "300", "--tuned", "--flash-attn", "on", "--json")
    assert own.json["config"]["flash_attn"] == "on"


@pytest.mark.parametrize("command", ["bench", "speed", "maxctx"])
def test_the_other_commands_take_them_too(ggbench: Run, plant: Plant, tiny_twin: Path, command: str) -> None:
    plant(at_depth={("flash_attn", "off"): 0.5})
    assert ggbench("tune", tiny_twin, *TUNE, "--quiet").code == 0
    ran = ggbench(command, tiny_twin, "--tuned")
    assert "flash_attn off, as run 1 found" in ran.err
    with Store.open() as store:
        (stored,) = store.list_runs(kind={"bench": "decode"}.get(command, command))
    assert '"flash_attn":"off"' in stored.setup_json
    assert "--flash-attn off" in stored.command


def test_where_nothing_is_faster_the_defaults_are_the_answer(
    ggbench: Run, plant: Plant, tiny_twin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ggbench.decisions.pick.drafts.speculate_command", lambda *_: "DRAFTS")
    plant(effects={**SLOWER, ("flash_attn", "off"): 1.3})
    ran = ggbench("tune", tiny_twin, *TUNE, "--json")
    assert (ran.code, ran.json["best"], ran.json["gain"], ran.json["has_gain"]) == (0, {}, {}, False)
    assert "To measure whether a draft model pays: DRAFTS" in ran.err
    assert "no setting beats the defaults" in ggbench("results", "show", 1).out
    decoded = ggbench("decode", tiny_twin, "-n", "300", "--tuned")
    assert decoded.code == 0
    assert "run 1 found no settings that beat the defaults" in decoded.err


def test_a_candidate_that_crashes_is_a_row(ggbench: Run, plant: Plant, tiny_twin: Path) -> None:
    plant(at_depth={("flash_attn", "off"): 0.5}, fatal=("mmap", False))
    ran = ggbench("tune", tiny_twin, *TUNE, "--json")
    assert ran.code == 0, ran.err
    (row,) = (each for each in ran.json["candidates"] if each["settings"] == {"mmap": False})
    assert row["state"] == "failed"
    assert "SIGSEGV" in row["reason"]
    assert ran.json["best"] == {"flash_attn": "off"}


def test_ctrl_c_gives_the_best_so_far(ggbench: Run, plant: Plant, machine: FakeMachine, tiny_twin: Path) -> None:
    plant(
        at_depth={("flash_attn", "off"): 0.5}, before_each=lambda number: machine.cancel.set() if number == 20 else None
    )
    ran = ggbench("tune", tiny_twin, *TUNE)
    assert ran.code == 130
    assert "not proven; the best so far is flash_attn off" in ran.out
    refused = ggbench("decode", tiny_twin, "--tuned")
    assert (refused.code, refused.out) == (2, "")


def test_a_machine_that_is_too_noisy_is_named_so(ggbench: Run, plant: Plant, tiny_twin: Path) -> None:
    planted = plant(busy=("make (pid 17, 93 % of a core)",))
    planted.before_each = lambda number: setattr(planted, "jump_at_s", 0.0 if number % 8 < 4 else 1e9)
    planted.jump = 1.5
    ran = ggbench("tune", tiny_twin, *TUNE, "--json")
    assert "too noisy to decide" in ran.err
    assert "make (pid 17, 93 % of a core)" in ran.json["unsteady"]
    assert ran.json["best"] == {}
    listed = ggbench("results").out
    assert "too noisy" in listed and "defaults" not in listed


@pytest.mark.parametrize("within_s", [2, 5, 10, 20, 60])
@pytest.mark.parametrize("drift_per_s", [0.0, 0.05])
def test_a_limit_holds_and_gives_what_was_found_until_then(
    ggbench: Run, plant: Plant, tiny_twin: Path, within_s: int, drift_per_s: float
) -> None:
    planted = plant(at_depth={("flash_attn", "off"): 0.5}, drift_per_s=drift_per_s)
    ran = ggbench("tune", tiny_twin, "--depth", "0,4096", "--within", f"{within_s}s", "--json")
    assert ran.code == 0
    assert planted.seconds <= 1.1 * within_s or planted.n_measured <= 6, "the baseline three times at two depths"
    found = ran.json
    assert bool(found["cut_short"] or found["unsteady"]) == (found["best"] == {})
    assert "give --within" in (found["cut_short"] or "give --within")


def test_what_time_was_too_short_for_is_said_and_taken_for_no_answer(
    ggbench: Run, plant: Plant, tiny_twin: Path
) -> None:
    plant()
    assert ggbench("tune", tiny_twin, "--depth", "0,4096", "--within", "6s").code == 0
    shown = ggbench("results", "show", "1").out
    assert "too little time to tell whether anything beats the defaults" in shown
    enough = shown.split("--within ")[1].split()[0]
    assert "not proven" in ggbench("results").out
    assert "there are no tuned settings for" in ggbench("decode", tiny_twin, "-n", 30, "--tuned").err
    assert ggbench("tune", tiny_twin, "--depth", "0,4096", "--within", enough).code == 0
    assert "cut short" not in ggbench("results", "show", "2").out


@pytest.mark.parametrize(
    "arguments",
    [("--depth", "many"), ("--depth", "-1"), ("--allow-kv", "q9"), ("--within", "soon"), ("--for", "ever"),
     ("--json", "--plot"), ("--n-ctx", "1024"), ("--for", "prefill", "-p", "1")],
)  # fmt: skip
def test_bad_input_is_refused_in_two_lines(ggbench: Run, plant: Plant, tiny_twin: Path, arguments: list[str]) -> None:
    planted = plant()
    ran = ggbench("tune", tiny_twin, *arguments)
    assert (ran.code, ran.out, planted.n_measured) == (2, "", 0)
    assert len(ran.err.strip().splitlines()) == 2


def test_what_was_found_with_another_build_is_stale(
    ggbench: Run, plant: Plant, tiny_twin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = plant(at_depth={("flash_attn", "off"): 0.5})
    assert ggbench("tune", tiny_twin, *TUNE, "--quiet").code == 0
    here = replace(ThisMachine.describe(), llama_cpp_python="9.9.9")
    monkeypatch.setattr(ThisMachine, "describe", classmethod(lambda cls: here))
    n_before = planted.n_measured
    ran = ggbench("decode", tiny_twin, "--tuned")
    assert (ran.code, ran.out, planted.n_measured) == (2, "", n_before)
    for words in ("are out of date; changed since: llama-cpp-python", "9.9.9 now", "Hint: ggbench tune"):
        assert words in ran.err


def test_prompts_are_searched_for_too(ggbench: Run, plant: Plant, tiny_twin: Path) -> None:
    plant(effects={**SLOWER, ("threads_batch", 4): 1.2, ("n_ubatch", 128): 0.8})
    ran = ggbench("tune", tiny_twin, *TUNE, "--for", "both", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["best"] == {"n_ubatch": 128}
    assert ran.json["gain"]["0"]["prefill_ratio"] == pytest.approx(1.25, rel=0.03)


def test_a_low_w_points_to_tune(
    ggbench: Run, plant: Plant, machine: FakeMachine, tiny_twin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(at_depth={("flash_attn", "off"): 0.5})
    machine.answers.clear()  # the usual fake workers, whose W is 200 tokens/ms
    ran = ggbench("decode", tiny_twin, "-n", "600")
    assert "of the memory bandwidth limit: ggbench tune" in ran.err
    assert "ggbench tune" in ggbench("bench", tiny_twin, "-n", "600").err
    with monkeypatch.context() as patched:
        patched.setattr("ggbench.commands.measuring._LOW_W", 0.01)  # W is 2 % of the limit
        assert "ggbench tune" not in ggbench("decode", tiny_twin, "-n", "600").err
    plant(at_depth={("flash_attn", "off"): 0.5})
    assert ggbench("tune", tiny_twin, *TUNE, "--quiet").code == 0
    machine.answers.clear()
    assert "--tuned uses the settings that run" in ggbench("decode", tiny_twin, "-n", "600").err
    assert "uses the settings" not in ggbench("decode", tiny_twin, "-n", "600", "--tuned").err


def test_a_model_that_does_not_fit_is_refused(
    ggbench: Run, plant: Plant, tiny_twin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = plant()
    monkeypatch.setattr("ggbench.decisions.pick.drafts.speculate_command", lambda *_: "DRAFTS")
    ran = ggbench("tune", tiny_twin, *TUNE, "--memory-limit", "2MiB")
    assert (ran.code, planted.n_measured) == (3, 0) and "DRAFTS" not in ran.err


@pytest.mark.parametrize(
    ("model", "drafts"),
    [
        ("qwen1.5-7b", ["--draft", "qwen1.5-0.5b:q8_0"]),
        ("twin:qwen3.8-27b", ["--mtp", "--engine", "llama-server"]),
        ("qwen1.5-0.5b", None),
        ("nobody/knows-it", None),
    ],
)
def test_what_could_draft_is_measured_by_one_command(model: str, drafts: list[str] | None) -> None:
    """`tune` ends with it, since the gain of a draft depends on the text."""
    words = ["ggbench", "speculate", model, "q4_k_m", *(drafts or [])]
    assert speculate_command(model, "q4_k_m") == ("" if drafts is None else " ".join(words))
