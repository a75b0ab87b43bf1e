"""export and import."""

import csv
import io
import json
from pathlib import Path

import pytest

from ggbench.engines.endings import Outcome
from ggbench.runs.store.database import Store
from tests.cli.conftest import FakeMachine, Run
from tests.fakes.measured import put_failed, start_search
from tests.formats.conftest import PEERS


@pytest.fixture
def decoded(ggbench: Run, machine: FakeMachine, tiny_twin: Path) -> Path:
    assert ggbench("decode", tiny_twin, "-n", "500").code == 0
    return tiny_twin


def test_import_names_each_run(ggbench: Run) -> None:
    ran = ggbench("import", PEERS / "llama-bench.json")

    assert ran.code == 0
    assert ran.out.splitlines()[:2] == ["2 runs imported.", "ggbench results show 2"]
    assert [" ".join(line.split()) for line in ran.out.splitlines()[4:6]] == [
        "1 prefill SmolLM2-135M-Instruct q4_1 llama-bench yes",
        "2 decode SmolLM2-135M-Instruct q4_1 llama-bench yes",
    ]
    again = ggbench("import", PEERS / "llama-bench.json")
    assert again.out.startswith("0 runs imported, 2 already there.")
    assert again.err == ""
    rows = ggbench("import", PEERS / "llama-bench.json", "--json").json["rows"]
    assert [(row["run_id"], row["is_new"], row["kind"]) for row in rows] == [
        (1, False, "prefill"),
        (2, False, "decode"),
    ]


def test_imported_runs_are_listed_shown_compared_and_plotted(ggbench: Run) -> None:
    ggbench("import", PEERS / "llama-bench.json", PEERS / "llama-bench.jsonl")

    listed = ggbench("results", "--why")
    rows = ggbench("results", "--json").json["rows"]
    shown = ggbench("results", "show", "2", "--plot", "--why")
    compared = ggbench("compare", "2", "4")

    assert "; imported: llama-bench, llama-bench.json\n" in listed.out
    assert listed.out.count("imported: llama-bench, llama-bench.jsonl") == 2
    assert {row["provenance"] for row in rows} == {"imported"}
    assert {row["imported"]["tool"] for row in rows} == {"llama-bench"}
    assert "imported: llama-bench, llama-bench.json, sha256 " in " ".join(shown.out.split())
    assert "position [tokens]" in shown.out
    assert (compared.code, "one run each" in " ".join(compared.out.split())) == (0, True)


def test_nothing_is_stored_where_one_file_is_broken(ggbench: Run, tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("[{]")

    ran = ggbench("import", PEERS / "llama-bench.json", broken)

    assert ran.code == 5
    assert ran.err.startswith("Error: broken.json, line 1, column 3")
    assert "Hint: " in ran.err
    assert ggbench("results", "--json").json["rows"] == []


def test_a_decode_is_exported_as_rows_of_llama_bench(ggbench: Run, decoded: Path) -> None:
    ran = ggbench("export", "1", "--format", "llama-bench")

    assert ggbench("export", "1").out == ran.out
    rows = json.loads(ran.out)
    assert [(row["n_prompt"], row["n_gen"], row["n_depth"]) for row in rows][-2:] == [(0, 500, 25), (0, 128, 256)]
    assert rows[0]["model_filename"] == decoded.name
    assert "written as llama-bench's default: build_commit" in ran.err


def test_a_row_to_publish_stands_below_its_names(ggbench: Run, decoded: Path) -> None:
    (row,) = csv.DictReader(io.StringIO(ggbench("export", "1", "--format", "row").out))
    assert (row["source"], row["backend"], row["quant"]) == ("", "CPU", "q8_0")
    assert (row["test"], row["n_depth"], row["stddev"]) == ("tg500", "25", "")
    assert str(decoded.parent) not in str(row)


def test_every_step_is_exported_as_csv_without_warm_up(
    ggbench: Run, decoded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ggbench.formats.run_document._MANY", 7)
    rows = list(csv.DictReader(io.StringIO(ggbench("export", "1", "--format", "csv").out)))
    assert list(rows[0]) == ["run_id", "kind", "model", "quant", "series", "position", "step_ns", "sampler_ns"]
    assert [int(row["position"]) for row in rows] == list(range(26, 526))
    assert {(row["run_id"], row["kind"], row["series"]) for row in rows} == {("1", "decode", "decode/p25/b1/r0")}
    assert all(int(row["step_ns"]) > 0 for row in rows)


def test_a_file_brings_a_run_home(ggbench: Run, decoded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "runs.json"
    words = ("export", "1", "--format", "json", "-o", path)
    saved = ggbench(*words)
    assert (saved.code, saved.out) == (0, "")
    over = ggbench(*words)
    assert (over.code, "exists already" in over.err) == (2, True)
    assert ggbench(*words, "--force").code == 0

    assert "already there" in ggbench("import", path).out
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "elsewhere"))
    assert "already there" not in ggbench("import", path).out
    shown = ggbench("results", "show", "1", "--json").json
    assert shown["run"]["head"]["environment"]["imported"]["file"] == "runs.json"
    assert shown["n_gen"] == 500
    assert str(decoded.parent) not in json.dumps(shown)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--format", "csv"), "Missing argument"), (("7", "--format", "csv"), "no run named '7'"),
        (("1", "--format", "csv", "-o", "."), "is a folder"),
    ],
)  # fmt: skip
def test_what_cannot_be_exported(arguments: tuple[str, ...], expected: str, ggbench: Run, decoded: Path) -> None:
    ran = ggbench("export", *arguments)

    assert ran.code == 2
    assert expected in ran.err
    assert ran.out == ""


def test_a_run_without_tests_of_llama_bench_is_named(ggbench: Run) -> None:
    with Store.open() as store:
        put_failed(store, start_search(), Outcome.OUT_OF_MEMORY, "")
    ggbench("import", PEERS / "llama-bench.json")

    alone = ggbench("export", "1")
    beside = ggbench("export", "1", "2")

    assert (alone.code, "none of these runs" in alone.err) == (2, True)
    assert "run 1 (maxctx) contains no llama-bench test" in beside.err
    assert len(json.loads(beside.out)) == 3
