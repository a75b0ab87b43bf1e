"""Published errors of quantization beside our own."""

import pytest
from msgspec.structs import replace

from ggbench.models.published import METRICS, WITH_ERRORS, PublishedFigure, ln_ppl_ratio
from ggbench.models.published.selection import OwnScore, nearest_published
from tests.models.published_rows import ROWS, only, printed


def test_errors_are_numbers_too() -> None:
    row = only(table="LLaMA 3 8b Scoreboard", quant="q4_k_m", imatrix=None)
    assert row.kld == PublishedFigure("0.031273 ± 0.000238", 0.031273, 0.000238)
    assert row.mean_dp_percent == PublishedFigure("-0.596 ± 0.014", -0.596, 0.014)
    assert printed(row, "same_top_percent") == "91.901 ± 0.072"
    in_quality = {
        metric
        for row in ROWS
        if row.text is not None
        for metric in METRICS
        if (cell := getattr(row, metric)) is not None and cell.error is not None
    }
    assert in_quality == set(WITH_ERRORS)


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
