"""`ggbench speculate`: how the draft is named, what is printed, and what is refused in one line."""

from pathlib import Path

import pytest

from ggbench.gguf_file.twin import cached_twin
from tests.cli.conftest import FakeMachine, Run
from tests.conftest import DRAFTING


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
    assert ran.code == 5 and "the vocabularies of the draft qwen1.5-0.5b q2_k and of" in ran.err


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


@pytest.fixture
def drafting(tmp_path: Path) -> Path:
    return cached_twin("drafting", DRAFTING, "q8_0", tmp_path)


PLANNED = ("device_kv_bytes", "draft_bytes", "needed_bytes", "left_bytes", "planned_n_ctx")
ELSEWHERE = ("--gpu", "rtx-3090", "--ram", "32GiB", "-c", "2k")


@pytest.mark.llama
def test_a_card_that_is_not_here_gets_gain_memory_and_command(ggbench: Run, drafting: Path) -> None:
    """Its own MTP layers draft; the memory is the plan's with and without them."""
    ran = ggbench("speculate", drafting, *ELSEWHERE, "--json")
    assert ran.code == 0, ran.err
    found = ran.json
    best = found["best"]
    assert best in found["steps"] and [each["k"] for each in found["steps"]] == [*range(1, best["k"] + 1)]
    with_drafts, plain = (
        ggbench("plan", drafting, *ELSEWHERE, *words, "--json").json["rows"][0]
        for words in (("--mtp", "--spec-draft-n-max", str(best["k"])), ())
    )
    for name, row in (("row", with_drafts), ("plain", plain)):
        assert {key: found[name][key] for key in PLANNED} == {key: row[key] for key in PLANNED}
    out = ggbench("speculate", drafting, *ELSEWHERE).out
    assert " ".join(out.split()).startswith(f"{found['answer']} {found['llama_server']}")
    assert f"--spec-draft-n-max {best['k']}" in found["answer"] and len(out.splitlines()) <= 20
    assert f"--spec-type draft-mtp --spec-draft-n-max {best['k']}" in found["llama_server"]


@pytest.mark.llama
def test_given_numbers_of_drafted_tokens_are_the_only_ones(ggbench: Run, tiny_twin: Path, drafting: Path) -> None:
    ran = ggbench("speculate", drafting, *ELSEWHERE, "-k", "2,5", "--json")
    assert [each["k"] for each in ran.json["steps"]] == [2, 5]
    pair = ggbench("speculate", tiny_twin, "--draft", tiny_twin, *ELSEWHERE, "-k", "3", "--json").json
    assert pair["draft"] and pair["best"]["cost"]["value"] > 3, "a draft as large as its model"
    assert pair["llama_server"] == "" and "does not pay" in pair["answer"]


@pytest.mark.llama
def test_where_the_model_or_its_drafts_have_no_room(ggbench: Run, drafting: Path) -> None:
    alone = ggbench("speculate", drafting, "--gpu", "10MiB@900GB/s", "--ram", "8GiB", "--reserve", "0")
    assert (alone.code, alone.out) == (3, "") and "does not fit" in alone.err and "ggbench plan" in alone.err
    [row] = ggbench("plan", drafting, *ELSEWHERE, "--json").json["rows"]
    room = ("--gpu", f"{row['needed_bytes'] // 1024 + 64}KiB@900GB/s", "--ram", "8GiB", "--reserve", "0", "-c", "2k")
    ran = ggbench("speculate", drafting, *room, "--json")
    assert ran.code == 3 and ran.json["llama_server"] == "" and "too much" in ran.json["answer"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 5, "--draft MODEL"),
        (("--mtp",), 5, "has no MTP layers"),
        (("-k", "9"), 2, "-k is at most 8"),
        (("--draft", "gemma-3-1b:q2_k"), 5, "vocabularies"),
        (("--mtp", "-d", "4k"), 2, "nothing is measured"),
        (("--spec-type", "ngram-simple"), 2, "nothing is measured"),
        (("-k", "0"), 2, "is out of range"),
    ],
)
def test_what_cannot_be_foreseen_ends_in_one_line(
    ggbench: Run, tiny_twin: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: int, said: str
) -> None:
    """Before an engine starts."""
    monkeypatch.setattr("ggbench.engines.contract.launch_engine", None)
    ran = ggbench("speculate", tiny_twin, *ELSEWHERE, *words)
    assert (ran.code, ran.out, ran.err.count("\n")) == (code, "", 2) and said in ran.err


@pytest.mark.llama
def test_pick_says_where_mtp_pays_and_fits(ggbench: Run, drafting: Path) -> None:
    words = ("pick", drafting, *ELSEWHERE, "-ctk", "f16", "-ctv", "f16")
    [line] = [each for each in ggbench(*words, "--json").json["notes"] if each.startswith("MTP pays: ~")]
    assert "times" in line and "--mtp --spec-draft-n-max" in line
    drafted = ggbench(*words, *line.partition(" memory: ")[2].split(), "--json").json
    assert not any("MTP pays" in each for each in drafted["notes"]), "it drafts already"
    assert "--spec-type draft-mtp" in drafted["commands"]["llama_server"]
