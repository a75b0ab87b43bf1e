"""The published figures: complete, as printed, and found by name or by nearness."""

from collections import Counter

import pytest

from ggbench.errors import UnknownName
from ggbench.models.published import METRICS
from ggbench.models.published.selection import filter_published
from tests.models.published_rows import ROWS, only, printed


def total(source: str, table: str | None, *metrics: str) -> float:
    """Return the sum of a figure over a document or one table; words count as 0."""
    return sum(
        cell.value or 0.0
        for row in ROWS
        if row.source == source and table in (None, row.table)
        for metric in metrics
        if (cell := getattr(row, metric)) is not None
    )


@pytest.mark.parametrize(
    ("source", "table", "metrics", "expected"),
    [
        ("qwen1.5-hf", None, ("tok_s",), 4020.26),
        ("qwen2-speed", None, ("tok_s", "memory_gb", "requests_s", "throughput_tok_s"), 39231.19),
        ("qwen2.5-speed", None, ("tok_s", "memory_gb"), 19424.07),
        ("article", "6.3.1", ("n_params_b", "weight_buffer_gb", "file_size_gb", "memory_gb"), 1275.00),
        ("article", "6.3.9 llama.cpp", ("max_n_ctx",), 4190855),
        ("article", "6.4.1", METRICS, 569229.98),
        ("article", "6.4.4", METRICS, 26970.88),
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


def test_a_word_is_never_a_number() -> None:
    cells = [cell for row in ROWS for metric in METRICS if (cell := getattr(row, metric)) is not None]
    words = Counter(cell.printed for cell in cells if cell.value is None)
    assert set(words) == {"oom", "N/A", "Exception", "not reported"}
    assert words["Exception"] == 5
    assert {cell.plain for cell in cells if cell.value is None} == set(words)


def test_columns_agree_with_each_other_as_the_documents_define_them() -> None:
    """B as w16 is B x 16 / BPW, and latency x throughput is the batch, so a shifted column would show."""
    for row in ROWS:
        if row.b_ms and row.b_ms.value and row.b_w16_ms and row.b_w16_ms.value and row.bpw and row.bpw.value:
            assert row.b_ms.value * 16 / row.bpw.value == pytest.approx(row.b_w16_ms.value, abs=0.0051)
        if row.latency_s and row.latency_s.value and row.throughput_tok_s and row.throughput_tok_s.value:
            product = row.latency_s.value * row.throughput_tok_s.value
            slip = "latency x throughput" in (row.remark or "")
            rounding = row.throughput_tok_s.value * 0.00005 + row.latency_s.value * 0.005
            assert (product == pytest.approx(row.batch_size, abs=1.01 * rounding)) != slip, row


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ({"model": "QWEN2.5-72B", "system": "vLLM"}, 27), ({"model": "qwen2.5-72b-instruct", "system": "vllm"}, 27),
        ({"model": "qwen2", "source": "qwen2-speed"}, 165), ({"system": "hf-transformers-fa2"}, 80),
        ({"device": "RTX-4090", "source": "bitsandbytes"}, 46), ({"device": "a100", "metric": "perplexity"}, 0),
        ({"quant": "Q4_K_M", "metric": "w-tokens-per-ms"}, 6), ({"quant": "gptq", "source": "qwen1.5-hf"}, 56),
    ],
)  # fmt: skip
def test_rows_are_found_by_name(asked: dict[str, str], count: int) -> None:
    assert len(filter_published(ROWS, **asked)) == count


@pytest.mark.parametrize(
    "asked",
    [
        {"model": "qwen2.5-7"}, {"system": "tgi"}, {"device": "b200"}, {"device": "90"}, {"device": " "},
        {"quant": "q9_k"}, {"metric": "elo"}, {"source": "blog"},
    ],
)  # fmt: skip
def test_a_name_that_no_row_has_is_an_error_with_the_known_ones(asked: dict[str, str]) -> None:
    with pytest.raises(UnknownName) as caught:
        filter_published(ROWS, **asked)
    assert caught.value.hint
