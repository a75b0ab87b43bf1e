"""The published figures: complete, as printed, and found by name or by nearness."""

from collections import Counter

import pytest
from msgspec.structs import replace

from ggbench.errors import UnknownName
from ggbench.models.published import load_sources
from ggbench.models.published.selection import OwnScore, OwnSpeed, filter_published, nearest_published
from scripts.perplexity_ratio import ln_ppl_ratio
from tests.models.published_rows import ROWS, only, printed


def total(source: str, table: str | None, *metrics: str) -> float:
    """Return the sum of a figure over a document or one table; words count as 0."""
    return sum(
        cell.value or 0.0
        for row in ROWS
        if row.source == source and table in (None, row.table)
        for metric, cell in row.figures.items()
        if metric in metrics or not metrics
    )


@pytest.mark.parametrize(
    ("source", "table", "metrics", "expected"),
    [
        ("qwen1.5-hf", None, ("tok_s",), 4020.26),
        ("qwen2-speed", None, ("tok_s", "memory_gb", "requests_s", "throughput_tok_s"), 39231.19),
        ("qwen2.5-speed", None, ("tok_s", "memory_gb"), 19424.07),
        ("article", "6.3.1", ("n_params_b", "weight_buffer_gb", "file_size_gb", "memory_gb"), 1275.00),
        ("article", "6.3.9 llama.cpp", ("max_n_ctx",), 4190855),
        ("article", "6.4.1", (), 569229.98),
        ("article", "6.4.4", (), 26970.88),
        ("llama.cpp-perplexity", "LLaMA 3 8b Scoreboard", ("perplexity",), 634.40),
        ("llama.cpp-perplexity", "LLaMA 3 8b Scoreboard", ("kld",), 20.60),
        ("llama.cpp-perplexity", "Llama 2 70B Scoreboard", ("perplexity",), 45.85),
        ("llama.cpp-quantize", None, ("bpw", "model_size_gib", "prefill_tok_s", "tok_s"), 21173.25),
    ],
)
def test_sums_over_a_table_are_those_of_the_raw_text(
    source: str, table: str | None, metrics: tuple[str, ...], expected: float
) -> None:
    assert total(source, table, *metrics) == pytest.approx(expected, abs=0.005)


@pytest.mark.parametrize(
    ("asked", "metric", "expected"),
    [
        ({"source": "qwen2-speed", "model": "qwen2-57b-a14b", "n_requests": 1000}, "throughput_tok_s", "5698.37"),
        ({"source": "qwen2-speed", "table": "7B (vLLM)", "quant": "gptq-int4", "n_prompt": 129024}, "tok_s", "29.39"),
        ({"source": "article", "table": "6.3.9 transformers", "size": "14B", "quant": "int8"}, "max_n_ctx", "4507"),
        ({"source": "article", "table": "6.4.4", "quant": "q4_k_m"}, "w_tokens_per_ms", "1606"),
        ({"source": "article", "table": "6.4.4", "quant": "q4_k_m"}, "b_ms", "11.98"),
    ],
)  # fmt: skip
def test_cells_are_as_printed(asked: dict[str, str | int], metric: str, expected: str) -> None:
    assert printed(only(**asked), metric) == expected


def test_the_table_of_each_row_is_one_of_its_document() -> None:
    known = {
        (document.id, name) for document in load_sources() for each in document.environment for name in each.tables
    }
    assert {(row.source, row.table) for row in ROWS} == known


def test_a_word_is_never_a_number() -> None:
    cells = [cell for row in ROWS for cell in row.figures.values()]
    words = Counter(cell.printed for cell in cells if cell.value is None)
    assert set(words) == {"oom", "N/A", "Exception", "not reported"}
    assert words["Exception"] == 5


def test_columns_agree_with_each_other_as_the_documents_define_them() -> None:
    """B as w16 is B x 16 / BPW, and latency x throughput is the batch, so a shifted column would show."""
    for row in ROWS:
        values = {column: cell.value for column, cell in row.figures.items() if cell.value}
        if {"b_ms", "b_w16_ms", "bpw"} <= values.keys():
            assert values["b_ms"] * 16 / values["bpw"] == pytest.approx(values["b_w16_ms"], abs=0.0051)
        if {"latency_s", "throughput_tok_s"} <= values.keys():
            product = values["latency_s"] * values["throughput_tok_s"]
            slip = "latency x throughput" in (row.remark or "")
            rounding = values["throughput_tok_s"] * 0.00005 + values["latency_s"] * 0.005
            assert (product == pytest.approx(row.batch_size, abs=1.01 * rounding)) != slip, row


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ({"model": "QWEN2.5-72B", "system": "vLLM"}, 27), ({"model": "qwen2.5-72b-instruct", "system": "vllm"}, 27),
        ({"model": "qwen2", "source": "qwen2-speed"}, 165), ({"system": "hf-transformers-fa2"}, 80),
        ({"device": "RTX-4090", "source": "bitsandbytes"}, 46),
        ({"device": "a100", "quant": "gptq", "source": "article"}, 0),
        ({"quant": "gptq", "source": "qwen1.5-hf"}, 56),
    ],
)  # fmt: skip
def test_rows_are_found_by_name(asked: dict[str, str], count: int) -> None:
    assert len(filter_published(ROWS, **asked)) == count


@pytest.mark.parametrize(
    "asked",
    [
        {"model": "qwen2.5-7"}, {"system": "tgi"}, {"device": "b200"}, {"device": "90"}, {"device": " "},
        {"quant": "q9_k"}, {"source": "blog"},
    ],
)  # fmt: skip
def test_a_name_that_no_row_has_is_an_error_with_the_known_ones(asked: dict[str, str]) -> None:
    with pytest.raises(UnknownName) as caught:
        filter_published(ROWS, **asked)
    assert caught.value.hint


def test_llama_cpp_rows_of_the_same_quant_come_first() -> None:
    own = OwnSpeed("qwen1.5-7b", "Q4_K_M", device="NVIDIA GeForce RTX 4090", n_prompt=25, n_gen=10_000)
    near = nearest_published(ROWS, own, 5)
    assert (near[0].row.table, near[0].row.quant, near[0].differences) == ("6.4.4", "q4_k_m", ())
    assert near[1].differences == ("quant q4_0, not q4_k_m",)
    assert len(near) == 5


def test_every_difference_is_named() -> None:
    own = OwnSpeed("qwen2.5-72b", "bf16", device="RTX 3060", n_prompt=512, n_gen=128, batch_size=2)
    (near,) = nearest_published(ROWS, own, 1)
    assert near.differences == (
        f"system {near.row.system}, not llama.cpp", "device NVIDIA A100 80GB, not RTX 3060", "2 GPUs",
        "tokens of input 1, not 512", "tokens generated 2048, not 128", "batch 1, not 2", "Instruct variant",
    )  # fmt: skip


def test_the_nearest_rows_follow_device_and_length() -> None:
    long = nearest_published(ROWS, OwnSpeed("qwen2.5-7b", "q4_k_m", n_prompt=60_000, n_gen=256), 2)
    assert {(row.row.quant, row.row.n_prompt) for row in long} == {("gptq-int4", 63488), ("awq", 63488)}
    on_h100 = nearest_published(ROWS, OwnSpeed("llama-3.1-70b", "q8_0", device="NVIDIA H100 80GB HBM3"), 2)
    assert {row.row.device for row in on_h100} == {"NVIDIA H100 80GB SXM"}


@pytest.mark.parametrize(
    ("device", "same"),
    [
        ("NVIDIA A100-SXM4-80GB", True), ("a100", True), ("NVIDIA A100-SXM4-40GB", False),
        ("NVIDIA A100-PCIE-80GB", False), ("NVIDIA A10", False), (None, False),
    ],
)  # fmt: skip
def test_a_device_is_the_same_only_when_its_bandwidth_is(device: str | None, same: bool) -> None:
    (near,) = nearest_published(ROWS, OwnSpeed("qwen2.5-7b", "q4_k_m", device=device), 1)
    assert any(difference.startswith("device ") for difference in near.differences) != same


def test_every_difference_of_a_score_is_named() -> None:
    own = OwnScore(None, "smol", 135_000_000, "q4_1", "q8_0/q4_0", "prose.txt", 128, 16, is_whole=False, base="q8_0")
    (near,) = nearest_published(ROWS, own, 1)
    assert near.differences == (
        "model llama-3-8b, not smol", "KV cache f16, not q8_0/q4_0", "text wikitext-2, not prose.txt",
        "n_ctx 512, not 128", "the whole text, not 16 chunks", "compared with f16, not q8_0",
    )  # fmt: skip
    (near,) = nearest_published(ROWS, replace(own, model="qwen1.5-7b", quant="q2_k_l", base=None), 1)
    assert near.row.model == "qwen1.5-7b"
    assert "n_ctx not stated, not 128" in near.differences
    assert "quant q3_k_m, not q2_k_l" not in near.differences


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"table": "LLaMA 3 8b Scoreboard", "quant": "q2_k", "imatrix": None}, (0.447789, 0.002892)),
        ({"table": "LLaMA 3 8b Scoreboard", "quant": "q4_0"}, (0.072491, None)),
        ({"table": "Llama 2 70B Scoreboard", "quant": "q4_0"}, (0.035416, None)),
        ({"table": "5.1", "size": "0.5B", "quant": "q2_k"}, (0.597164, None)),
        ({"table": "5.1", "size": "0.5B", "quant": "f16"}, None),
        ({"table": "6.4.4", "quant": "q4_k_m"}, None),
    ],
)
def test_the_ratio_of_perplexities_follows_from_what_is_printed(
    asked: dict[str, str], expected: tuple[float, float | None] | None
) -> None:
    found = ln_ppl_ratio(only(**asked))
    if expected is None or found is None:
        assert found == expected
    else:
        assert found[0] == pytest.approx(expected[0], abs=1e-6)
        assert found[1] == (None if expected[1] is None else pytest.approx(expected[1], abs=1e-6))
