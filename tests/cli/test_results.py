"""results, models, inspect and twin."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench import paths
from ggbench.gguf_file.header import read_model_file
from ggbench.models.subject import model_name
from ggbench.runs.store.database import Store
from tests.cli.conftest import FakeMachine, Run
from tests.fakes.measured import put_run, start
from tests.fakes.projector import a_projector


def test_an_empty_store_says_what_to_do(ggbench: Run) -> None:
    ran = ggbench("results")
    assert (ran.code, ran.out.splitlines()) == (0, ["No runs yet.", "ggbench demo"])
    assert ggbench("results", "--json").json["rows"] == []


def test_list_show_and_remove(ggbench: Run, machine: FakeMachine, tiny_twin: Path) -> None:
    ggbench("decode", tiny_twin, "-n", "300")
    ggbench("decode", tiny_twin, "-n", "400")
    rows = ggbench("results", "--json")
    assert [row["run_id"] for row in rows.json["rows"]] == [2, 1]
    shown = ggbench("results", "show", "2", "--plot")
    assert shown.code == 0
    assert "tok/s over 400 tokens" in shown.out
    assert "llama.cpp test" in ggbench("results", "show", "2", "--why").out
    by_number = ggbench("results", "1")
    assert (by_number.code, by_number.err.splitlines()[-1]) == (2, "Hint: ggbench results show 1")
    refused = ggbench("results", "rm", "1")
    assert refused.code == 2
    assert "--yes" in refused.err
    assert ggbench("results", "rm", "1", "--yes").code == 0
    assert [row["run_id"] for row in ggbench("results", "--json").json["rows"]] == [2]


def test_runs_are_found_by_the_name_that_their_list_shows(ggbench: Run, machine: FakeMachine, tiny_twin: Path) -> None:
    ggbench("decode", tiny_twin, "-n", "300")
    with Store.open() as store:
        name = model_name(store.load_run(1).subject)
    assert name in ggbench("results").out and name != str(tiny_twin)
    assert [row["unsteady"] for row in ggbench("results", "--model", name, "--json").json["rows"]] == [None]
    ran = ggbench("results", "--model", "another")
    assert (ran.code, ran.out.splitlines()[0]) == (0, "No run of another is stored.")
    assert ggbench("results", "--model", "another", "--json").json["rows"] == []


def test_a_run_is_found_by_the_longer_name_that_it_has_where_another_has_the_shorter(ggbench: Run) -> None:
    files = [f"/home/me/{folder}/models/x-Q4_K_M.gguf" for folder in ("a", "b")]
    with Store.open() as store:
        for file in files:
            head = start("models")
            put_run(store, replace(head, subject=replace(head.subject, source="file", file=file)), n_gen=300)
    assert all(file in ggbench("results").out for file in files)
    found = [ggbench("results", "--model", name, "--json").json["rows"] for name in ("x", *files)]
    assert [[row["run_id"] for row in rows] for rows in found] == [[2, 1], [1], [2]]


def test_a_no_removes_nothing(
    ggbench: Run, machine: FakeMachine, tiny_twin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ggbench("decode", tiny_twin, "-n", "300")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("click.confirm", lambda *_, **_options: False)
    ran = ggbench("results", "rm", "1")
    assert (ran.code, ran.err.splitlines()[-1]) == (130, "nothing was removed")
    assert ggbench("results", "show", "1").code == 0


def test_a_broken_store_is_moved_aside_and_said(ggbench: Run, machine: FakeMachine, tiny_twin: Path) -> None:
    path = paths.results_file()
    path.parent.mkdir(parents=True)
    path.write_bytes(b"this is not a database" * 100)
    ran = ggbench("decode", tiny_twin, "-n", "300")
    assert ran.code == 0
    moved = [other for other in path.parent.iterdir() if "broken" in other.name]
    assert moved[0].read_bytes() == b"this is not a database" * 100
    assert str(moved[0]) in ran.err
    with Store.open() as store:
        assert len(store.list_runs()) == 1


def test_inspect_counts_what_the_header_says(ggbench: Run, tiny_twin: Path) -> None:
    model = read_model_file(tiny_twin)
    document = ggbench("inspect", tiny_twin, "--json").json
    assert document["bpw"] == model.bpw
    assert document["n_params"] == model.n_params
    assert len(document["tensors"]) == len(model.tensors)
    assert "blk.1.ffn_down.weight" in ggbench("inspect", tiny_twin, "--why").out


def test_inspect_says_what_a_projector_is(ggbench: Run, projector: Path) -> None:
    image = {"image_size": 896, "patch_size": 14, "embedding_length": 1152, "projection_dim": 1024}
    projector.write_bytes(a_projector(vision=image))
    ran = ggbench("inspect", projector)
    assert "--mmproj" in ran.out and "KV" not in ran.out
    projector.write_bytes(a_projector(type_id=999))
    unknown = ggbench("inspect", projector)
    assert (unknown.code, "Unknown tensor types" in unknown.out) == (0, True)


def test_inspect_of_a_folder_says_what_lists_its_models(ggbench: Run, tmp_path: Path) -> None:
    (folder := tmp_path / "my models").mkdir()
    refused = ggbench("inspect", folder)
    assert refused.code == 2
    assert f"its models are listed by: ggbench models '{folder}'" in refused.err


def test_inspect_of_a_download_that_stopped(
    ggbench: Run, tiny_twin: Path, tmp_path: Path, machine: FakeMachine
) -> None:
    """The header is complete, so it is shown; a run is refused before anything is loaded."""
    path, size = tmp_path / "begun-q8_0.gguf", tiny_twin.stat().st_size
    path.write_bytes(tiny_twin.read_bytes()[:-100_000])
    whole, begun = (ggbench("inspect", each, "--json").json for each in (tiny_twin, path))
    assert (whole["missing_bytes"], begun["missing_bytes"]) == (0, 100_000)
    assert (whole["file_bytes"], begun["file_bytes"]) == (size, size - 100_000)
    assert begun["tensor_types"] == whole["tensor_types"]
    shown = ggbench("inspect", path)
    assert shown.code == 5
    assert shown.out.startswith("begun-q8_0 is truncated: 97.7 KiB of its ")
    assert "Error: begun-q8_0.gguf is truncated: 97.7 KiB of its " in shown.err
    assert "truncated" not in ggbench("inspect", tiny_twin).out
    for command in ("decode", "maxctx"):
        ran = ggbench(command, path)
        assert (ran.code, "97.7 KiB of its" in ran.err) == (5, True)
    assert machine.workers == []


def test_synth_writes_twins_that_say_so(ggbench: Run, tmp_path: Path) -> None:
    args = ("twin", "qwen1.5-0.5b", "Q4_0", "--layers", "1", "-o", tmp_path, "--json")
    document = ggbench(*args).json
    files = [Path(row["file"]) for row in document["rows"]]
    assert [row["quant"] for row in document["rows"]] == ["q4_0"]
    assert all(read_model_file(path).is_twin and path.parent == tmp_path for path in files)
    before = [path.stat().st_mtime_ns for path in files]
    assert ggbench(*args).code == 0
    assert [path.stat().st_mtime_ns for path in files] == before


def test_a_finished_run_names_the_command_that_shows_it(
    ggbench: Run, machine: FakeMachine, tiny_twin: Path, tmp_path: Path
) -> None:
    """For a sweep it is the command that compares its runs."""

    def next_of(*words: object) -> str:
        return ggbench(*words).out.splitlines()[1]

    assert next_of("decode", tiny_twin, "-n", "300").startswith("ggbench results show 1")
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(tiny_twin.read_bytes())
    assert next_of("bench", tmp_path, "-n", "300").startswith("ggbench compare 2 3")


def test_a_run_is_found_by_what_was_typed_and_a_missing_one_is_a_usage_error(ggbench: Run) -> None:
    """Also by a name that is no text, as it is stored."""
    with Store.open() as store:
        put_run(store, start("odd\udcff"), n_gen=300)
    assert len(ggbench("results", "--model", "odd\udcff", "--json").json["rows"]) == 1
    for words in (("show", "7"), ("rm", "7", "--yes")):
        assert ggbench("results", *words).code == 2
