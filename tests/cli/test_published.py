"""`ggbench published`: rows filtered; words never become numbers."""

import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import FakeMachine, Run


def test_published_rows_of_72b_come_with_their_settings(ggbench: Run) -> None:
    document = ggbench("published", "qwen2.5-72b", "--system", "vllm", "--json").json
    assert document["schema"] == "ggbench.published/2"
    assert len(document["rows"]) == 27
    assert {row["setting"] is not None for row in document["rows"]} == {True}
    assert {
        (row["figures"]["memory_gb"]["printed"], row["figures"]["memory_gb"]["value"]) for row in document["rows"]
    } == {("not reported", None)}
    assert [source["id"] for source in document["sources"]] == ["qwen2.5-speed"]


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (("qwen2.5-8b",), "qwen2.5-7b"), (("--device", "rtx-4091"), "rtx-4090"),
    ],
)  # fmt: skip
def test_an_error_on_an_unknown_published_name_lists_the_known_ones(
    ggbench: Run, args: tuple[str, ...], what: str
) -> None:
    """A typing error must not read as "nobody measured it"."""
    ran = ggbench("published", *args)
    assert (ran.code, ran.out) == (2, "")
    assert what in ran.err


def test_measured_rows_stand_against_published_ones(
    ggbench: Run, machine: FakeMachine, tiny_twin: Path, tmp_path: Path
) -> None:
    model = shutil.copy(tiny_twin, tmp_path / "qwen1_5-7b-chat-q8_0.gguf")
    row = ggbench("bench", model, "-n", "300", "--against", "published", "--json").json
    assert row["against"][0]["row"]["system"] == "llama.cpp"
    assert "tokens generated 10000, not 300" in row["against"][0]["differences"]
    shown = ggbench("results", "show", "1", "--against", "published", "--json").json
    assert shown["against"] == row["against"]
    for words in (("results", "show", "1"), ("bench", model, "-n", "300")):
        assert "against published rows" in " ".join(ggbench(*words, "--against", "published").out.split())


def test_published_errors_are_columns(ggbench: Run) -> None:
    args = ("published", "llama-3-8b", "--quant", "q4_k_m")
    row = ggbench(*args, "--json").json["rows"][1]
    assert (row["figures"]["perplexity"]["value"], row["figures"]["perplexity"]["error"]) == (6.407115, 0.039119)
    assert (row["text"], row["n_ctx"], row["base"], row["imatrix"]) == ("wikitext-2", 512, "f16", None)
    assert "± 0.000238" in ggbench(*args).out
    assert "0.031273" in ggbench(*args).out and "llama-bench" in ggbench("published").out
    assert ggbench("published", "llama-3-8b", "--quant", "awq").out.startswith("No published row")


def test_losses_of_a_quantized_cache_name_its_types_and_their_address(ggbench: Run) -> None:
    args = ("published", "--source", "kv-cache-loss", "gemma-4-26b-a4b")
    rows = ggbench(*args, "--json").json["rows"]
    cache = {(row["type_k"], row["remark"]): row["figures"]["kld"]["value"] for row in rows}
    assert cache["q8_0", "before rotation"] == 0.5783 and cache["q4_0", "rotated"] == 1.088
    assert "localbench.substack.com/p/kv-cache-quantization-benchmark" in "".join(ggbench(*args, "--why").out.split())


def test_acceptances_of_drafts_are_listed_by_kind_and_row_by_row_with_their_places(ggbench: Run) -> None:
    short, whole = (ggbench("published", "--source", "acceptance", *more).out for more in ((), ("--why",)))
    kinds = {words[0]: words[1] for words in map(str.split, short.splitlines()) if len(words) == 9}
    rows = ggbench("published", "--source", "acceptance", "--json").json["acceptances"]
    assert kinds["mtp"] == str(
        sum(row["kind"] == "mtp" and bool(row["n_draft"] and (row["mean_len"] or row["share"])) for row in rows)
    )
    assert all("".join(row["source"].split()) in "".join(whole.split()) for row in rows)
    assert "| mtp |" in ggbench("published", "--source", "acceptance", "--md").out
    both = ggbench("published", "--source", "acceptance", "qwen2.5-7b")
    assert (both.code, both.out) == (2, "")


def test_a_long_list_is_cut_and_why_has_all_of_it(ggbench: Run) -> None:
    args = ("published", "qwen1.5-7b")
    short, whole = (ggbench(*args, *more).out.splitlines() for more in ((), ("--why",)))
    n_rows = int(short[0].split()[0])
    assert len(short) < 40 and any(f"{n_rows - 25} rows more" in line for line in short)
    assert len(whole) > n_rows


def test_rows_of_llama_bench_stand_beside_the_documents(ggbench: Run) -> None:
    document = ggbench("published", "--device", "rtx-4090", "--quant", "q4_k_m", "--json").json
    rows, sources = document["llama_bench_rows"], document["llama_bench_sources"]
    assert {row["device"] for row in rows} == {"rtx-4090"}
    assert {row["quant"] for row in rows} == {"q4_k_m"}
    assert {row["source"] for row in rows} == {source["id"] for source in sources}
    assert document["rows"] == []


def test_a_model_of_the_catalog_on_a_machine_that_it_knows(ggbench: Run) -> None:
    """Rows of llama-bench name its architecture, and Macs of other sizes have its chip."""
    found = ggbench("published", "qwen3.6-35b-a3b", "--device", "m4-max-48gb", "--json").json["llama_bench_rows"]
    assert {each["model"] for each in found} == {"qwen35moe 35B.A3B"}
    assert {each["device"] for each in found} >= {"m4-max-128gb", "m4-max-64gb"}
