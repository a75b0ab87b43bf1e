"""`ggbench doctor` on this machine, with faults planted in its folders."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from ggbench.engines.llama.build import LlamaBuild
from ggbench.paths import (
    added_places_file,
    caches_dir,
    header_index_file,
    machine_cache_file,
    measure_choices_file,
    results_file,
    user_models_file,
)
from tests.cli.conftest import Run
from tests.fakes.nvml import install, replay


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    from ggbench.machine.condition import describe_cpu_state
    from tests.fakes.machines import SOUND

    monkeypatch.setattr("ggbench.decisions.doctor.checkup.describe_llama_build", lambda: SOUND.llama)
    monkeypatch.setattr("ggbench.decisions.doctor.checkup.describe_cpu_state", lambda watch: describe_cpu_state())


def codes(ran: dict[str, object]) -> list[str]:
    return [each["code"] for each in ran["findings"]]  # type: ignore[attr-defined]


def test_a_fresh_home_stays_as_it_was(ggbench: Run, unmeasured: Path) -> None:
    ran = ggbench("doctor")

    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("ggbench doctor: ")
    for fact in ("- llama.cpp: 0.5.0 (0c1e570)", "- results file: none yet", "- Hub: not logged in"):
        assert fact in ran.out
    assert str(unmeasured) not in ran.out
    assert list(unmeasured.iterdir()) == []


def test_every_cache_is_counted(ggbench: Run) -> None:
    compiled = caches_dir() / "llama.cpp/0.3.36/1/llama.whl"
    compiled.parent.mkdir(parents=True)
    compiled.write_bytes(bytes(3 << 20))

    text, document = ggbench("doctor"), ggbench("doctor", "--json")

    (line,) = [line for line in text.out.splitlines() if line.startswith("- caches: ")]
    assert "llama.cpp 3.00 MiB" in line
    used = {each["name"]: each["used_bytes"] for each in document.json["places"]}
    assert used["caches"] >= used["llama.cpp"] == 3 << 20


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
    assert ran.json["schema"] == "ggbench.doctor/1"
    assert "store.damaged" in codes(ran.json)
    assert results_file().read_bytes() == b"garbage" * 100


def test_damaged_lists_catalogs_and_caches_are_named(ggbench: Run, home: Path) -> None:
    user_models_file().parent.mkdir(parents=True)
    user_models_file().write_text("[[model]]\nid = 3\n")
    for file in (added_places_file(), measure_choices_file(), header_index_file()):
        file.write_bytes(b'{"places": ["\xff')
    added_places_file().with_name("places.broken-2.json").touch()

    ran = ggbench("doctor", "--json")

    found = {each["code"]: f"{each['message']}: {each['hint']}" for each in ran.json["findings"]}
    assert "models.toml, line 2: id: Expected" in found["catalog.damaged"]
    assert "places.json is damaged, so none of the folders" in found["places.damaged"]
    assert "places.broken-2.json" in found["places.set_aside"]
    assert codes(ran.json).count("cache.damaged") == 2
    machine_cache_file().parent.mkdir(parents=True, exist_ok=True)
    for file in (machine_cache_file(), measure_choices_file(), header_index_file()):
        file.write_text('{"files": 1, "kind": 2}')  # JSON, but not of the type that is read
    assert codes(ggbench("doctor", "--json").json).count("cache.damaged") == 3
    assert str(home) not in ran.out


class _Process:
    """A process of this user as psutil shows it; without a parent, the first process has adopted it."""

    pid, name = 4242, staticmethod(lambda: "python3")
    uids, memory_info = (staticmethod(lambda: SimpleNamespace(real=os.getuid(), rss=5 << 30)) for _ in range(2))

    def __init__(self, words: str, parent: str = "") -> None:
        self.cmdline = words.split
        self.parent = (lambda: _Process(parent)) if parent else (lambda: None)


def test_a_worker_or_server_without_its_ggbench_is_named(ggbench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, server = "python3 -m ggbench.engines.llama.worker 5", "llama-server --host 127.0.0.1 --port 0 -lv 4"
    processes = [
        _Process(worker), _Process(server), _Process(worker, "ggbench bench"), _Process(server, "python3 keeper"),
        _Process("llama-server --host 127.0.0.1 --port 8080"),
    ]  # fmt: skip
    monkeypatch.setattr("psutil.process_iter", lambda: iter(processes))

    found = [each for each in ggbench("doctor", "--json").json["findings"] if each["code"] == "process.left"]

    assert [each["message"] for each in found] == [
        f"{name} of a ggbench that is gone still runs (pid 4242, 5.00 GiB)" for name in ("a worker", "a llama-server")
    ]
    assert {each["hint"] for each in found} == {"kill 4242"}


def test_a_missing_llama_cpp_is_reported(ggbench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = LlamaBuild(is_installed=False, problem="the package llama-cpp-python is not installed")
    monkeypatch.setattr("ggbench.decisions.doctor.checkup.describe_llama_build", lambda: missing)

    ran = ggbench("doctor", "--json")

    assert (ran.code, "llama.missing" in codes(ran.json)) == (0, True)


def test_serial_numbers_are_shown_only_where_asked_for(ggbench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, replay("two-a5000"))

    plain, whole = ggbench("doctor", "--json"), ggbench("doctor", "--json", "--with-paths")

    assert "llama.cuda" in codes(plain.json)
    assert [each["gpu"]["uuid"] for each in plain.json["gpu_driver"]["gpus"]] == [None, None]
    assert all(each["gpu"]["uuid"].startswith("GPU-") for each in whole.json["gpu_driver"]["gpus"])
    assert str(results_file()) == whole.json["store"]["path"]
