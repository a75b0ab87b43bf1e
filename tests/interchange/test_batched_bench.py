from __future__ import annotations

import json

import pytest

from ggbench.errors import BadFile, UsageError
from ggbench.experiments.speed.record import SpeedResult
from ggbench.formats.keeping import keep
from ggbench.runs.store.database import Store
from ggbench.show.presenter import presenter_of
from tests.interchange.conftest import PEERS, ReadRuns


@pytest.mark.parametrize("form", ["md", "jsonl"])
def test_cases_have_the_speeds_that_the_tool_printed(form: str, read: ReadRuns) -> None:
    (run,) = read(f"llama-batched-bench.{form}", model="smollm2", quant="q4_1")

    assert run.run.head.kind == "speed"
    assert isinstance(run.run.result, SpeedResult)
    found = {(c.case.n_input, c.case.n_seqs): (c.prefill_tok_s, c.decode_tok_s, c.tok_s_qwen3)
             for c in run.run.result.cases}  # fmt: skip
    text = (PEERS / f"llama-batched-bench.{form}").read_text()
    if form == "jsonl":
        rows = [json.loads(line) for line in text.splitlines() if line]
        printed = {(r["pp"], r["pl"]): (r["speed_pp"], r["speed_tg"], r["speed"]) for r in rows}
    else:
        cells = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|  ")][1:]
        printed = {(int(c[0]), int(c[2])): (float(c[5]), float(c[7]), float(c[9])) for c in cells}
    assert set(found) == {(n_input, n_seqs) for n_input in (64, 128) for n_seqs in (1, 2, 4)}
    for case, speeds in printed.items():
        assert found[case] == pytest.approx(speeds, rel=0.005)


def test_throughput_is_compared_with_batch_1(read: ReadRuns) -> None:
    (run,) = read("llama-batched-bench.jsonl", model="smollm2", quant="q4_1")

    assert isinstance(run.run.result, SpeedResult)
    gains = {case.case.n_seqs: case.gain for case in run.run.result.cases if case.case.n_input == 64}
    assert gains[1] == 1.0
    assert (gains[4] or 0) > (gains[2] or 0) > 1.0
    assert presenter_of("speed").so_far(run.run).startswith("6 of 6 cases")


def test_the_model_has_to_be_named(read: ReadRuns) -> None:
    with pytest.raises(UsageError, match="does not name its model") as caught:
        read("llama-batched-bench.md")
    assert caught.value.hint == "give --model and --quant"


def test_the_same_table_of_another_model_is_another_run(store: Store, read: ReadRuns) -> None:
    one = keep(store, read("llama-batched-bench.md", model="a", quant="q4_1"))
    other = keep(store, read("llama-batched-bench.md", model="b", quant="q4_1"))
    again = keep(store, read("llama-batched-bench.md", model="a", quant="q4_1"))

    assert [each.is_new for each in (*one, *other, *again)] == [True, True, False]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"pp": "x"}, "line 1: PP is 'x', which is not a number"),
        ({"pl": 0}, "whole numbers from 1 on"),
        ({"tg": 1.5}, "whole numbers from 1 on"),
        ({"t_tg": 0}, "T_TG s is 0"),
        ({"t_pp": None}, "T_PP s is None"),
        ({"is_pp_shared": 1}, "share a prompt"),
        ({"pl": 100_000}, "more than llama.cpp takes"),
    ],
)
def test_a_row_that_is_none_is_refused(change: dict[str, object], expected: str, read: ReadRuns) -> None:
    row = json.loads((PEERS / "llama-batched-bench.jsonl").read_text().splitlines()[0]) | change

    with pytest.raises(BadFile) as caught:
        read("x.jsonl", json.dumps(row), model="a", quant="b")

    assert expected in caught.value.message
