"""`ggbench limits`: the article's numbers on the command line, other models, and errors."""

from pathlib import Path

import pytest

from ggbench.machine import gpus
from tests.cli.conftest import Run

CARD = ("--gpu", "24GiB@1008GB/s", "--compute", "82.58TFLOPS")


def test_the_articles_numbers_are_in_the_json(ggbench: Run) -> None:
    """W, B, lengths and knees of Qwen1.5 7B on the RTX 4090, as sections 4.3, 4.4 and 5.1 print them."""
    document = ggbench("limits", "qwen1.5-7b", *CARD, "--json").json
    assert document["schema"] == "ggbench.limits/2"
    assert document["convention"]["name"] == "article"
    rows = {row["scheme"]: row for row in document["rows"]}
    of_schemes = [rows[name] for name in ("w16kv16", "w8kv16", "w4kv16")]
    figures = [(round(row["w_tokens_per_ms"]), round(row["b_ms"], 2), row["max_n_ctx"]) for row in of_schemes]
    assert figures == [(2064, 13.12, 22072), (2064, 6.56, 35612), (2064, 3.28, 42382)]
    assert rows["w16kv16"]["knees"] == [113, 481]
    assert rows["w6kv16"]["max_n_ctx"] == 38997
    assert document["parameters"]["active"] / document["convention"]["giga"] == pytest.approx(6.61, abs=0.005)


def test_a_file_is_counted_by_its_own_bytes(ggbench: Run, tiny_twin: Path) -> None:
    (row,) = ggbench("limits", tiny_twin, "--gpu", "1GiB", "--json").json["rows"]
    assert (row["weights"], row["scheme"]) == ("q8_0", "q8_0 kv16")
    assert row["bpw"] == pytest.approx(8.5, abs=0.1)
    (row,) = ggbench("limits", tiny_twin, "w4", "--gpu", "1GiB", "-ctk", "q8_0", "-ctv", "q8_0", "--json").json["rows"]
    assert row["scheme"] == "w4kv-q8_0"


def test_without_a_machine_what_needs_one_is_unknown(ggbench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "list_gpus", lambda: ())
    ran = ggbench("limits", "qwen2.5-7b", "--json")
    assert ran.code == 0
    assert ran.json["machine"]["memory_bytes"] is None
    assert {row["w_tokens_per_ms"] for row in ran.json["rows"]} == {None}
    assert ran.json["kv"]["bytes_per_token"] == 56 << 10
    assert "--gpu rtx-4090" in ggbench("limits", "qwen2.5-7b").out


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (("--gpu", "rtx-4091"), "did you mean rtx-4090"), (("--gpu", "rtx-3090x2"), "of one GPU"),
        (("--gpu", "99999999TiB"), "none of the"),
        (("--gpu", "24GiB@1008GB"), "a bandwidth such as 1008GB/s"),
        (("--compute", "82.58"), "a compute rate such as 82.58TFLOPS"), (("w0",), "above 0 and up to 64"),
    ],
)  # fmt: skip
def test_an_error_on_bad_input_says_what_is_accepted(ggbench: Run, args: tuple[str, ...], what: str) -> None:
    ran = ggbench("limits", "qwen1.5-7b", *args)
    assert (ran.code, ran.out) == (2, "")
    assert what in ran.err
    assert len(ran.err.splitlines()) == 2
