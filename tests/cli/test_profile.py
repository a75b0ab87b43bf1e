"""`ggbench profile`, and what `--machine` answers from its file alone."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.machine.profile import MachineProfile, find_profile
from ggbench.stats.profile_speed import Timed
from tests.cli.conftest import FakeMachine, Run
from tests.fakes.profiles import planted_profile


@pytest.fixture(autouse=True)
def _no_gpu(machine: FakeMachine) -> FakeMachine:
    return machine


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    path = tmp_path / "planted.json"
    path.write_bytes(planted_profile().encode())
    return path


@pytest.fixture
def takes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def take(on_step: object) -> MachineProfile:
        return replace(planted_profile(), drift=0.3)

    monkeypatch.setattr("ggbench.sizing.profiling.take_profile", take)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("takes")
def test_a_profile_is_written_and_shown(ggbench: Run, tmp_path: Path) -> None:
    """Under a name of its own, so that none is overwritten."""
    ran = ggbench("profile")
    assert ran.code == 0
    assert "Planted CPU, 64.0 GiB, 20.0 GB/s" in ran.out and "q4_k" in ran.out
    assert "disturbed the timings by 30 %" in ran.err
    ggbench("profile")
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["planted-cpu-2.json", "planted-cpu.json"]
    assert find_profile(str(tmp_path / "planted-cpu-2.json")).host == planted_profile().host
    assert ggbench("profile", "-o", "planted-cpu.json").code == 2
    assert ggbench("profile", "-o", "planted-cpu.json", "--force").code == 0


@pytest.mark.usefixtures("takes")
def test_its_json_is_the_file(ggbench: Run, tmp_path: Path) -> None:
    ran = ggbench("profile", "--json", "-o", "mine.json")
    assert ran.json == json.loads((tmp_path / "mine.json").read_bytes())


def test_a_plan_for_a_profile_has_its_memory_and_an_expected_speed(ggbench: Run, planted: Path) -> None:
    """Nothing of this machine counts, and no network is asked."""
    ran = ggbench("plan", "qwen1.5-0.5b", "q4_k_m", "--machine", planted, "--offline", "--json")
    assert ran.code == 0
    assert ran.json["machine"]["memory_bytes"] == 64 << 30
    assert ran.json["machine"]["device"] == "Planted CPU, main memory"
    expected = ran.json["rows"][0]["expected"]
    assert expected["speed_basis"] == "profile"
    low, high = expected["tok_s_ci95"]
    assert low < expected["tok_s"] < high < 2e10 / 3e8
    text = ggbench("plan", "qwen1.5-0.5b", "q4_k_m", "--machine", planted, "--offline").out
    assert "a profile of Planted CPU, 2026-11-23" in " ".join(text.split())


def test_layers_on_a_card_and_in_main_memory_each_cost_what_they_do_there(ggbench: Run, planted: Path) -> None:
    """The card has 8 GiB, of which all layers of a 7B leave less than 4."""
    whole = planted_profile()
    rates = {
        n: replace(each, gib_ms={name: Timed(timed.ms / 10, 0.0) for name, timed in each.gib_ms.items()})
        for n, each in whole.host.rates.items()
    }
    card = replace(
        whole.host, name="Card", backend="CUDA", memory_bytes=8 << 30, bandwidth_bytes_per_s=3e11, rates=rates
    )
    planted.write_bytes(replace(whole, devices=(card,)).encode())

    def tok_s(*options: object) -> float:
        ran = ggbench("plan", "qwen2.5-7b", "q4_k_m", "--machine", planted, "--offline", "--json", *options)
        expected = ran.json["rows"][0]["expected"]
        assert expected["speed_basis"] == "profile"
        return float(expected["tok_s"])

    on_card, split, on_cpu = tok_s(), tok_s("-ngl", 14), tok_s("-ngl", 0)
    assert on_card > 1.5 * split > 1.5 * on_cpu


def test_a_forecast_for_a_profile_measures_nothing(ggbench: Run, machine: FakeMachine, planted: Path) -> None:
    ran = ggbench("forecast", "qwen1.5-0.5b", "q8_0", "--machine", planted, "--json", "--offline")
    assert ran.code == 0 and not machine.workers
    assert ran.json["basis"].startswith("a profile of Planted CPU")
    assert ran.json["tok_s"]["1"] > ran.json["tok_s"]["32768"]
    assert set(ran.json["prefill_ms"]) == {"512", "2048", "8192"}
    assert str(planted) in ran.json["command"]


def test_pick_decides_by_a_profile(ggbench: Run, planted: Path) -> None:
    ran = ggbench("pick", "qwen1.5-0.5b", "--machine", planted, "--offline", "--json")
    assert ran.code == 0
    assert '"speed_basis": "profile"' in ran.out


@pytest.mark.parametrize("command", ["plan", "forecast", "pick"])
def test_a_bad_profile_ends_in_exit_code_5(ggbench: Run, planted: Path, command: str) -> None:
    planted.write_bytes(planted.read_bytes()[:-100])
    ran = ggbench(command, "qwen1.5-0.5b", "--machine", planted, "--offline")
    assert ran.code == 5
    assert ran.err.count("\n") == 2 and "planted.json is not a device profile, or it is cut off" in ran.err


def test_a_profile_is_the_whole_machine(ggbench: Run, planted: Path) -> None:
    ran = ggbench("plan", "qwen1.5-0.5b", "--machine", planted, "--gpu", "rtx-3060")
    assert ran.code == 2 and "--machine describes the whole machine" in ran.err
    assert ggbench("plan", "qwen1.5-0.5b", "--machine", "no-such-machine").code == 2
