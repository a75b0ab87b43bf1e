"""The loss that is expected of a quant before it is measured: what others published."""

import pytest

from ggbench.expect.known_losses import typical_loss
from ggbench.models.published import is_base, load_published


@pytest.mark.parametrize(
    ("quant", "architecture", "billions", "nats", "source"),
    [
        ("Q4_K_M", "llama", 8, 0.02119925, "q4_k_m of llama-3-8b and llama-2-7b"),
        ("q4_k_m", "qwen35", 27, 0.01524, "q4_k_m of qwen3.6-27b, qwen3.8-27b, qwen3.5-35b-a3b and qwen3.5-9b"),
        (
            "ud-q4_k_xl", "qwen35moe", 35, 0.0134,
            "ud-q4_k_xl and q4_k_m of qwen3.6-35b-a3b, qwen3.5-35b-a3b, qwen3.6-27b, qwen3.8-27b and qwen3.5-9b",
        ),
        ("q4_k_m", "qwen35", 0.8, 0.01348, "q4_k_m of llama-2-7b, llama-3-8b and qwen3.8-27b"),
        ("iq3_xxs", "llama4", 108, 0.204, "iq3_xxs of llama-4-scout"),
        ("ud-iq2_xs", "", 27, 0.546290, "iq2_xs of llama-3-8b"),
        ("q4_k_m", "qwen3moe", 30.5, 0.01348, "q4_k_m of qwen3.8-27b, llama-3-8b and llama-2-7b"),
        ("q4_k_s", "qwen3", 8, 0.029803, "q4_k_s of qwen3-4b"),
        ("ud-iq2_m", "minimax-m2", 229, 0.191059, "ud-iq2_m of minimax-m2.7, over another text or n_ctx"),
        ("ud-iq3_xxs", "deepseek2", 1026, 0.0643119, "ud-iq3_xxs of kimi-k2, by perplexity"),
        ("iq4_xs", "deepseek2", 671, 0.02627, "iq4_xs of qwen3.6-27b, qwen3.8-27b and llama-3-8b"),
        ("q4_k_s", "lfm2moe", 8.3, 0.093833, "q4_k_s of lfm2-8b-a1b"),
        ("q4_k_m", "lfm2moe", 8.3, 0.093833 * 0.029712500 / 0.037543500, "q4_k_s of lfm2-8b-a1b, scaled"),
        ("q4_k_m", "qwen2", 1.5, 0.050789, "q3_k_m of qwen2.5-1.5b, over another text or n_ctx, scaled"),
        ("q8_0", "glm4moe", 106, 0.00064, "q8_0 of qwen3.8-27b, llama-3-8b and llama-2-7b"),
    ],
)  # fmt: skip
def test_the_typical_loss_is_that_of_the_nearest_relative(
    quant: str, architecture: str, billions: float, nats: float, source: str
) -> None:
    """Qwen3.5 27B was scored over a longer context, Qwen3 30B A3B over speech, where a divergence is smaller. A
    small loss by perplexity, that of DeepSeek R1's IQ4_XS, tells nothing, nor does that of GLM 4.7's Q8_0, its base.
    """
    loss = typical_loss(quant, round(billions * 1e9), architecture)
    assert loss is not None
    assert loss.nats.value == pytest.approx(nats, rel=1e-5)
    assert loss.source.partition(";")[0] == source
    assert loss.nats.low <= loss.nats.value <= loss.nats.high


def test_the_divergences_of_the_nearest_model_come_first() -> None:
    dense, mixture = typical_loss("q4_k_m", 27 * 10**9), typical_loss("ud-q4_k_m", 35 * 10**9)
    assert dense is not None and mixture is not None
    assert [each.of for each in dense.published[:3]] == [
        "qwen3.5-27b, imatrix bartowski", "qwen3.5-27b, imatrix unsloth", "qwen3.5-27b, imatrix mradermacher i1",
    ]  # fmt: skip
    assert (mixture.published[0].of, mixture.published[0].nats) == ("qwen3.6-35b-a3b, imatrix unsloth", 0.0138)


def test_small_models_may_lose_more_than_any_large_one() -> None:
    """The factor is the tables': the largest score of a model below 2B over that of others in the same quant."""
    found: dict[tuple[str, bool], float] = {}
    for row in load_published():
        if row.kld and row.kld.value and row.quant and not is_base(row):
            key = row.quant, float(row.size.partition("B")[0]) < 2
            found[key] = max(found.get(key, 0.0), row.kld.value)
    factor = max(kld / found[quant, False] for (quant, is_small), kld in found.items() if is_small)
    small, large = typical_loss("q4_k_m", 135 * 10**6, "llama"), typical_loss("q4_k_m", 8 * 10**9, "llama")
    own = typical_loss("q3_k_m", 600 * 10**6, "qwen3")
    assert small is not None and large is not None and own is not None
    assert small.nats.high == pytest.approx(factor * 0.031273, rel=0.01)
    assert large.nats.high < 0.0313
    assert own.nats.high == 0.39525


def test_a_type_that_nobody_measured_has_no_typical_loss() -> None:
    assert typical_loss("tq1_0", 8 * 10**9) is None


def test_a_type_loses_no_more_than_a_coarser_one() -> None:
    for architecture, billions in (("qwen35moe", 35), ("llama", 8), ("gemma4", 31), ("glm4moe", 106)):
        finer, coarser = (typical_loss(quant, billions * 10**9, architecture) for quant in ("q8_0", "q6_k"))
        assert finer is not None and coarser is not None
        assert finer.nats.value <= coarser.nats.value


def test_the_loss_of_a_cache_is_none_of_the_weights_beside_it() -> None:
    cache = [row.kld.value for row in load_published() if row.type_k and row.kld and row.quant == "q8_0"]
    known = typical_loss("q8_0", 35_000_000_000, "qwen35moe")
    assert cache and known and not {each.nats for each in known.published} & set(cache)
