"""compare, and stored runs as files."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench import paths
from ggbench.engines.endings import Outcome
from ggbench.runs.store.database import Store
from tests.cli.conftest import Run
from tests.fakes.measured import fill, put_failed, put_run, start

GOLDEN = Path(__file__).parents[1] / "data" / "golden"


@pytest.fixture
def filled() -> Path:
    path = paths.results_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    fill(path)
    return path


@pytest.mark.parametrize("width", [80, 120])
def test_two_runs_side_by_side(ggbench: Run, filled: Path, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    ran = ggbench("compare", "1", "3")
    text = "".join(f"{line.rstrip()}\n" for line in ran.out.splitlines())
    golden = GOLDEN / f"compare_{width}.txt"
    if os.environ.get("GGBENCH_UPDATE_GOLDEN") == "1":
        golden.write_text(text, encoding="utf-8")
    assert (ran.code, ran.err) == (0, "")
    assert text == golden.read_text(encoding="utf-8")


def test_the_document_has_rows_metrics_and_the_sentence(ggbench: Run, filled: Path) -> None:
    document = ggbench("compare", "3", "1", "--json").json
    assert document["schema"] == "ggbench.compare/1"
    assert [(row["name"], row["run_id"]) for row in document["rows"]] == [("q8_0", 3), ("q4_k_m", 1)]
    metrics = {metric["metric"]: metric for metric in document["metrics"]}
    b = metrics["b_ms"]
    assert (b["compared"], b["better"], b["over"]) == ([3, 1], [1], 3)
    low, high = b["ratio_ci95"]
    assert low < b["ratio"] < high
    assert b["ratio"] == pytest.approx(10 / 17, rel=0.01)
    assert b["verdict"].startswith("b is better: 0.59 ±0.06 times")
    assert metrics["memory_bytes"]["better"] == [1]
    assert metrics["memory_bytes"]["ratio_ci95"] is None
    assert metrics["p50_ms"]["better"] == []
    assert document["differences"]["configuration"] == []
    assert any(line.startswith("quant: q8_0 in a") for line in document["differences"]["file"])
    assert document["sentence"].startswith("q4_k_m is faster: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["1"], "comparing needs two runs or more"), (["1", "3", "1"], "run 1 is given 2 times"),
        (["1", "99"], "no run named '99'"), (["1", "2"], "nothing in common that can be compared"),
        (["1", "2"], "Hint: a is q4_k_m, b is f16; only a has"),
        (["--model", "qwen"], "stored are runs of twin:qwen1.5-0.5b"),
        (["1", "x"], "'x' is neither the number of a run nor a file"),
        (["1", "3", "--plot", "--json"], "--plot cannot be used with --json"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_a_usage_error(
    ggbench: Run, filled: Path, arguments: list[str], message: str
) -> None:
    ran = ggbench("compare", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert len(ran.err.splitlines()) == 2


def test_two_files_of_one_name_and_quant_have_two_names(
    ggbench: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with Store.open() as store:
        for path in ("/m/a/model.gguf", "/m/b/model.gguf"):
            head = start(model=path)
            put_run(store, replace(head, subject=replace(head.subject, source="file", file=path)))
        put_failed(store, start(quant="f16"), Outcome.OUT_OF_MEMORY, "out of memory in load")
    names = ["a/model.gguf", "b/model.gguf"]
    listed, compared = ggbench("results").out, ggbench("compare", "1", "2")
    ggbench("report", "1", "2", "-o", tmp_path / "x.svg")
    for name in names:
        assert name in listed
        assert name in compared.out
        assert name in (tmp_path / "x.svg").read_text()
    document = ggbench("compare", "1", "2", "--json").json
    assert [row["name"] for row in document["rows"]] == names
    assert document["warnings"] == []
