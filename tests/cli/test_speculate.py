"""`ggbench speculate`: how the draft is named, what is printed, and what is refused in one line."""

from pathlib import Path

import pytest

from tests.cli.conftest import FakeMachine, Run


@pytest.fixture(autouse=True)
def _no_gpu(machine: FakeMachine) -> FakeMachine:
    return machine


def test_a_measured_pair_in_json_and_as_text(ggbench: Run, tiny_twin: Path) -> None:
    words = ("speculate", tiny_twin, "--draft", tiny_twin, "-k", "1,3", "-d", "0,64")
    ran = ggbench(*words, "--json")
    assert ran.code == 0, ran.err
    found = ran.json
    result = found["run"]["result"]
    assert [(case["n_depth"], case["step"]["times"]["k"]) for case in result["cases"]] == [
        (0, 1), (0, 3), (64, 1), (64, 3),
    ]  # fmt: skip
    low, high = found["break_even_len_ci95"]
    assert low <= found["break_even_len"] <= high
    assert result["pair"]["draft"]["file"] == str(tiny_twin)
    text = ggbench("results", "show", found["run_id"])
    assert text.out.startswith(found["verdict"]) and found["llama_server"] in text.out
    assert "break-even tokens" in text.out


def test_the_draft_is_a_model_and_a_quant(ggbench: Run, tiny_twin: Path) -> None:
    ran = ggbench("speculate", tiny_twin, "--draft", "twin:qwen1.5-0.5b:q2_k")
    assert ran.code == 2 and "the vocabularies of the draft qwen1.5-0.5b q2_k and of" in ran.err


def test_without_a_draft_it_says_what_to_add(ggbench: Run, tiny_twin: Path) -> None:
    ran = ggbench("speculate", tiny_twin)
    assert ran.code == 2 and "--draft MODEL" in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--mtp", "--spec-type", "ngram-simple"), "--mtp and --spec-type ngram-simple exclude each other"),
        (("--mtp", "--draft", "small.gguf"), "--draft and --mtp exclude each other"),
        (("--spec-type", "ngram-simple", "-ctkd", "q8_0"), "are for a draft"),
    ],
)
def test_contradicting_drafts_are_refused(ggbench: Run, tiny_twin: Path, words: tuple[str, ...], said: str) -> None:
    ran = ggbench("speculate", tiny_twin, *words)
    assert ran.code == 2 and said in ran.err


def test_a_model_without_mtp_layers_needs_no_other_engine(ggbench: Run, tiny_twin: Path) -> None:
    ran = ggbench("speculate", tiny_twin, "--mtp")
    assert ran.code == 5 and "has no MTP layers" in ran.err and "--engine" not in ran.err


def test_no_room_for_both(ggbench: Run, tiny_twin: Path) -> None:
    ran = ggbench("speculate", tiny_twin, "--draft", tiny_twin, "--memory-limit", "20MiB")
    assert ran.code == 3 and "and its draft need" in ran.err and "smaller quant" in ran.err


def test_a_published_model_is_not_downloaded(ggbench: Run, repo: str, tiny_twin: Path) -> None:
    ran = ggbench("speculate", repo, "q8_0", "--draft", tiny_twin, "-k", "3", "-d", "0", "--json")
    assert ran.code == 0 and ran.json["provenance"] == "twin" and ran.json["k"] == 3
