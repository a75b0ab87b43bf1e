"""`ggbench speed` over fake workers: its rows and documents, what a person is asked, and bad input in one line."""

from pathlib import Path

import pytest

from tests.cli.conftest import FakeMachine, Run
from tests.fakes.scores import trained_folder


def test_every_case_is_in_the_document(ggbench: Run, machine: FakeMachine, tiny_twin: Path) -> None:
    ran = ggbench("speed", tiny_twin, "--inputs", "1,512,2048", "-n", "64", "--batch", "1,4,8", "--json")
    assert ran.code == 0
    cases = ran.json["run"]["result"]["cases"]
    assert len(cases) == 9
    for case in cases:
        ended = case["ended"]
        assert ended["outcome"] == "completed"
        n_read, n_generated = (ended["case"]["n_seqs"] * ended["case"][name] for name in ("n_input", "n_gen"))
        seconds = n_read / case["prefill_tok_s"] + n_generated / case["decode_tok_s"]
        assert case["tok_s_qwen2_5"] == pytest.approx(n_generated / seconds)
        assert case["tok_s_qwen3"] == pytest.approx((n_read + n_generated) / seconds)
        assert ended["memory_bytes"] > ran.json["weight_bytes"]
    assert ran.json["schema"] == "ggbench.speed/2"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--batch", "1,x"], "--batch: '1,x' is not a list of batch sizes"),
        (["-np", "4", "-b", "2"], "a step of 4 sequences does not fit into an n_batch of 2"),
        (["--batch", "1000"], "a batch of 1,000 sequences is more than llama.cpp supports"),
        (["-c", "512"], "No such option"),
    ],
)
def test_bad_input_is_one_line(
    ggbench: Run, machine: FakeMachine, tiny_twin: Path, options: list[str], message: str
) -> None:
    ran = ggbench("speed", tiny_twin, *options)
    assert ran.code == 2
    assert message in ran.err.splitlines()[0]
    assert len(ran.err.splitlines()) == 2
    assert not machine.workers


def test_cases_that_are_given_twice_are_measured_once(ggbench: Run, machine: FakeMachine, tiny_twin: Path) -> None:
    ran = ggbench("speed", tiny_twin, "--inputs", "16,16", "-n", "4", "--batch", "2,1,2", "--json")
    cases = [each["ended"]["case"] for each in ran.json["run"]["result"]["cases"]]
    assert [(case["n_seqs"], case["n_input"]) for case in cases] == [(1, 16), (2, 16)]


def test_without_a_quant_all_are_measured(ggbench: Run, machine: FakeMachine, tmp_path: Path) -> None:
    ran = ggbench("speed", trained_folder(tmp_path), "--inputs", "1", "-n", "4", "--json")
    assert ran.json["schema"] == "ggbench.speed.all/2"
    assert [(row["quant"], len(row["run"]["result"]["cases"])) for row in ran.json["rows"]] == [
        ("q8_0", 1),
        ("q4_0", 1),
    ]
