"""compare: runs of any kind, files, models, published figures, repeats, and limits that fail."""

import html
import math
import os
import shlex
from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench import paths
from ggbench.engines.endings import Outcome
from ggbench.experiments.prefill.record import PrefillResult
from ggbench.experiments.quality.record import QualityResult, QualitySettings, ScoredText, TextSource
from ggbench.runs.run import Run as RunRecord
from ggbench.runs.run import RunHead
from ggbench.runs.store.database import Store
from ggbench.show.presenter import presenter_of
from ggbench.stats.intervals import ChunkMean
from tests.cli.conftest import Run
from tests.fakes.llama_server import install
from tests.fakes.measured import fill, put_failed, put_run, start

GOLDEN = Path(__file__).parents[1] / "data" / "golden"


@pytest.fixture
def filled() -> None:
    fill(paths.results_file())


def test_two_runs_side_by_side(ggbench: Run, filled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ran = ggbench("compare", "1", "3")
    text = "".join(f"{line.rstrip()}\n" for line in ran.out.splitlines())
    golden = GOLDEN / "compare.txt"
    if os.environ.get("GGBENCH_UPDATE_GOLDEN") == "1":
        golden.write_text(text, encoding="utf-8")
    assert (ran.code, ran.err) == (0, "")
    assert text == golden.read_text(encoding="utf-8")


def test_the_document_has_rows_metrics_and_the_sentence(ggbench: Run) -> None:
    put_decodes({"q8_0": tuple(value * 1.7 for value in STEADY), "q4_k_m": STEADY})
    document = ggbench("compare", *range(1, 13), "--json").json
    assert document["schema"] == "ggbench.compare/2"
    assert [(row["name"], row["run_ids"]) for row in document["rows"]] == [
        ("q8_0", [1, 3, 5, 7, 9, 11]), ("q4_k_m", [2, 4, 6, 8, 10, 12]),
    ]  # fmt: skip
    metrics = {metric["metric"]: metric for metric in document["metrics"]}
    speed = metrics["tok_s"]
    assert (speed["outcome"], speed["better"]) == ("better", ["b"])
    versus = speed["versus"][1]
    assert 1 < versus["ratio_ci95"][0] < versus["ratio"] < versus["ratio_ci95"][1]
    assert metrics["memory_bytes"]["better"] == ["b"]
    assert metrics["w_tokens_per_ms"]["versus"][1]["ratio"] == pytest.approx(1, abs=0.01)
    assert {(each["topic"], each["name"]) for each in document["differences"]} == {
        ("file", "quant"), ("file", "size"), ("file", "BPW"), ("file", "path"),
    }  # fmt: skip
    assert document["sentence"].startswith("q4_k_m is faster: ")


def test_two_files_of_one_name_and_quant_have_two_names(ggbench: Run) -> None:
    with Store.open() as store:
        for path in ("/m/a/model.gguf", "/m/b/model.gguf"):
            head = start(model=path)
            put_run(store, replace(head, subject=replace(head.subject, source="file", file=path)))
        put_failed(store, start(quant="f16"), Outcome.OUT_OF_MEMORY, "out of memory in load")
    names = ["/m/a/model.gguf", "/m/b/model.gguf"]
    listed, compared = ggbench("results").out, ggbench("compare", "1", "2")
    for name in names:
        assert name in listed
        assert name in compared.out
    document = ggbench("compare", "1", "2", "--json").json
    assert [row["name"] for row in document["rows"]] == names
    assert document["warnings"] == []


TEXT = TextSource("topics", "ab" * 32, 1000)


def put_decodes(b_ms: dict[str, tuple[float, ...]]) -> None:
    with Store.open() as store:
        for hour, values in enumerate(zip(*b_ms.values(), strict=True)):
            for quant, value in zip(b_ms, values, strict=True):
                head = replace(start(quant=quant), started_at=f"2026-11-20T{hour:02}:00:00+00:00")
                put_run(store, head, b_ms=value)


def put_result(head: RunHead, result: PrefillResult | QualityResult) -> int:
    with Store.open() as store:
        return store.add(RunRecord(head=head, outcome=Outcome.COMPLETED, result=result))


def quality(nll: tuple[float, ...], quant: str = "q4_k_m") -> tuple[RunHead, QualityResult]:
    head = replace(start(quant=quant), kind="quality", settings=QualitySettings(TEXT))
    scored = ScoredText(10_000, len(nll), "cd" * 32)
    ppl = math.exp(sum(nll) / len(nll))
    result = QualityResult(TEXT, 512, scored, len(nll), 255 * len(nll), ChunkMean(ppl), nll)
    return head, result


def test_more_chunks_are_asked_for_once() -> None:
    head, result = quality((2.0,) * 4)
    result = replace(result, scored=ScoredText(10_000, 64, "cd" * 32))
    head = replace(head, command="ggbench quality m q4_0 --chunks 4 --text x")
    run = RunRecord(head=head, outcome=Outcome.COMPLETED, result=result)
    presenter, asked = presenter_of("quality"), "ggbench quality m q4_0 --text x --chunks"
    assert presenter.longer([run]) == f"{asked} 16"
    other = replace(run, result=replace(result, n_chunks=8))
    assert presenter.longer([run, other]) == f"{asked} 32 && {asked} 32"
    assert presenter.longer([run, replace(run, result=None)]) == ""
    whole = replace(run, result=replace(result, n_chunks=64))
    assert (presenter.longer([run, whole]), presenter.longer([whole])) == (f"{asked} 64", "")


def test_runs_of_one_chunk_each_name_the_command_that_decides(ggbench: Run) -> None:
    for quant in ("q4_k_m", "q2_k"):
        head, result = quality((2.0,), quant)
        scored = ScoredText(10_000, 64, "cd" * 32)
        put_result(replace(head, command=f"ggbench quality m {quant}"), replace(result, scored=scored))
    ran = ggbench("compare", "1", "2")
    assert ran.out.splitlines()[:2] == [
        "Not compared in PPL: without an interval (a and b).",
        "ggbench quality m q4_k_m --chunks 4 && ggbench quality m q2_k --chunks 4",
    ]


STEADY = (10.0, 10.1, 9.95, 10.05, 10.0, 9.9)


def test_runs_in_turns_decide_and_one_run_each_does_not(ggbench: Run) -> None:
    put_decodes({"q4_k_m": STEADY, "q8_0": tuple(value * 1.05 for value in STEADY)})
    one, same = ggbench("compare", "1", "2"), ggbench("compare", "1", "5")
    assert one.out.splitlines()[0].startswith("No verdict, one run each: q8_0 has 0.9")
    assert "The same file, setup and machine; 2 runs." in same.out
    assert ggbench("compare", *range(1, 13)).out.splitlines()[-1].endswith("; 6 turns.")
    other = ggbench("compare", *range(1, 13), "--json").json
    speed = next(metric for metric in other["metrics"] if metric["metric"] == "tok_s")
    assert speed["better"] == ["a"]
    first, versus = speed["versus"]
    assert first is None
    low, high = versus["ratio_ci95"]
    assert low < versus["ratio"] < high < 1
    assert versus["p"] < 0.05 and versus["is_different"]


def test_a_report_says_what_compare_says(ggbench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ggbench.formats.report_page.vega_script", str)
    put_decodes({"q4_k_m": STEADY, "q8_0": tuple(value * 1.15 for value in STEADY)})
    said = ggbench("compare", "1", "2").out.splitlines()[0]
    assert ggbench("report", "1", "2", "-o", tmp_path / "x.html").code == 0
    assert html.escape(said) in (tmp_path / "x.html").read_text()


def test_runs_are_measured_again_in_turns(ggbench: Run, tiny_twin: Path, tmp_path: Path) -> None:
    """The command that is printed for an undecided comparison works."""
    program = install(tmp_path)
    for flags in ("", " --step-ns 5000000"):
        engine = f"llama-server={program}{flags}"
        assert ggbench("decode", tiny_twin, "-n", "300", "-t", "1", "--engine", engine).code == 0
    text, command, *_ = ggbench("compare", "1", "2").out.splitlines()
    assert text.startswith("No verdict, one run each: ")
    assert command == "ggbench compare 1 2 -r 4"
    again = ggbench(*shlex.split(command)[1:-1], "2")
    assert again.out.startswith("No verdict, 2 of 4 turns: llama-server --step-ns 5000000 has 2.0")
    assert "; 2 turns.\n" in again.out
    assert len(again.out.splitlines()) <= 16


def test_published_figures_are_shown_below(ggbench: Run) -> None:
    put_decodes({"q4_k_m": STEADY[:1], "q8_0": (17.0,)})
    one, two = ggbench("compare", "1", "--against", "published"), ggbench("compare", "1", "2", "--against", "published")
    assert "against published rows" in one.out
    assert two.out.index("q8_0 has 0.") < two.out.index("against published rows")
    document = ggbench("compare", "1", "--against", "published", "--json").json
    assert document["published"][0]["against"]


@pytest.mark.parametrize(
    ("arguments", "code", "message", "hint"),
    [
        (("1",), 2, "comparing needs at least two runs", "ggbench results"),
        (("1", "99"), 2, "no run named '99'", ""),
        (("1", "x.json"), 2, "'x.json' is not a valid integer", "ggbench compare --help"),
        (("1", "3"), 2, "have nothing in common to compare", "compare runs of one kind"),
        (("1", "2", "--plot", "--json"), 2, "--plot cannot be used with --json", ""),
    ],
)
def test_what_cannot_be_compared_is_said_in_two_lines(
    ggbench: Run, arguments: tuple[str, ...], code: int, message: str, hint: str
) -> None:
    put_decodes({"q4_k_m": STEADY[:1], "q8_0": (17.0,)})
    put_result(*quality((2.5, 2.4, 2.6, 2.5)))
    ran = ggbench("compare", *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err.splitlines()[0]
    assert hint in ran.err.splitlines()[1]
