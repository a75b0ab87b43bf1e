"""`ggbench doctor` on this machine, with faults planted in its folders."""

from pathlib import Path

import pytest

from ggbench.engines.llama.build import LlamaBuild
from ggbench.paths import results_file
from tests.cli.conftest import Run
from tests.fakes.machines import SOUND
from tests.fakes.nvml import install, replay


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ggbench.decisions.doctor.checkup.describe_llama_build", lambda: SOUND.llama_cpp)


def codes(ran: dict[str, object]) -> list[str]:
    return [each["code"] for each in ran["findings"]]  # type: ignore[attr-defined]


def test_a_fresh_home_stays_as_it_was(ggbench: Run, unmeasured: Path) -> None:
    ran = ggbench("doctor", "--why")

    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("All well")
    for fact in ("llama.cpp  0.5.0 with", "runs                  none yet"):
        assert fact in ran.out
    assert str(unmeasured) not in ran.out
    assert list(unmeasured.iterdir()) == []


def test_each_folder_that_cannot_be_written_has_its_variable(ggbench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", "/dev/null")
    monkeypatch.setenv("HF_HOME", "/dev/null/huggingface")

    found = {each["message"]: each["hint"] for each in ggbench("doctor", "--json").json["findings"]}

    for folder, variable in (("results", "XDG_DATA_HOME"), ("caches", "XDG_CACHE_HOME"), ("Hugging", "HF_HOME")):
        (hint,) = [hint for message, hint in found.items() if message.startswith(f"the folder of {folder}")]
        assert f"point {variable} at a folder that can" in hint


def test_a_damaged_store_is_reported_and_left(ggbench: Run) -> None:
    results_file().parent.mkdir(parents=True)
    results_file().write_bytes(b"garbage" * 100)

    ran = ggbench("doctor", "--json")

    assert ran.code == 0
    assert ran.json["schema"] == "ggbench.doctor/2"
    assert "results" in codes(ran.json)
    assert results_file().read_bytes() == b"garbage" * 100


def test_a_missing_llama_cpp_is_reported(ggbench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = LlamaBuild(is_installed=False, problem="the package llama-cpp-python is not installed")
    monkeypatch.setattr("ggbench.decisions.doctor.checkup.describe_llama_build", lambda: missing)

    ran = ggbench("doctor", "--json")

    assert (ran.code, "llama" in codes(ran.json)) == (0, True)


def test_a_gpu_without_its_backend_is_named(ggbench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, replay("two-a5000"))

    ran = ggbench("doctor", "--json")

    assert "gpu.backend" in codes(ran.json)
    assert ran.json["driver"].startswith("590.")
    assert [each["name"] for each in ran.json["gpus"]] == ["NVIDIA RTX A5000"] * 2
