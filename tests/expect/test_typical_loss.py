"""What quants and KV caches are expected to lose before it is measured: by rows of the model, or typical."""

import itertools
import math
import sys
from subprocess import run

import pytest
from msgspec.structs import replace

from ggbench.expect.loss import UNQUANTIZED, expected_cache_loss, expected_loss, is_clearly_above
from ggbench.stats.intervals import Expected

_LADDER = ("q8_0", "q6_k", "q5_k_m", "q5_k_s", "q4_k_m", "q4_k_s", "q3_k_m", "q3_k_s", "q2_k")


def _expected(quant: str, billions: float, architecture: str, model: str = "") -> Expected:
    found = expected_loss(model, quant, round(billions * 1e9), architecture)
    assert found is not None
    assert found.low <= found.value <= found.high
    return found


@pytest.mark.parametrize(
    ("model", "quant", "billions", "architecture", "nats"),
    [
        ("qwen3-30b-a3b", "q4_k_m", 30.5, "qwen3moe", 0.0101),
        ("Qwen/Qwen3-30B-A3B-GGUF", "Q4_K_M", 30.5, "qwen3moe", 0.0101),
        ("/models/Qwen_Qwen3-30B-A3B-Q4_K_M.gguf", "q4_k_m", 30.5, "qwen3moe", 0.0101),
        ("qwen3.6-27b", "q8_0", 27, "qwen35", 0.00049),
        ("qwen3.6-27b", "q6_k", 27, "qwen35", 0.0021),
    ],
)
def test_rows_of_the_model_come_first(model: str, quant: str, billions: float, architecture: str, nats: float) -> None:
    """Whatever text they state: it is in the source, and the interval is not that of the type."""
    loss = _expected(quant, billions, architecture, model)
    assert loss.basis == "published"
    assert loss.value == pytest.approx(nats, rel=0.01)
    assert loss.high / loss.low < 10
    assert "row" in loss.source


def test_other_quants_follow_the_models_own() -> None:
    """Llama 3 8B's rows and Qwen3 30B's are of few quants each; the first loses twice as much in those of both."""
    for quant in ("q5_1", "q2_k", "ud-q3_k_xl"):
        large, small = (_expected(quant, *of) for of in ((8, "llama", "llama-3-8b"), (27, "qwen35", "qwen3.5-27b")))
        assert large.value > 1.5 * small.value
    own, typical = (_expected("q6_k", 30.5, "qwen3moe", model) for model in ("qwen3-30b-a3b", "another"))
    assert own.basis == typical.basis == "typical"
    assert own.high / own.low < typical.high / typical.low


@pytest.mark.parametrize("model", ["", "qwen3-30b-a3b", "qwen3.6-27b", "qwen3.6-35b-a3b", "gemma-3-27b", "gemma-4-e4b"])
@pytest.mark.parametrize(
    ("billions", "architecture"), [(0.6, "qwen3"), (8, "llama"), (31, "gemma4"), (671, "deepseek2")]
)
def test_fewer_bits_lose_more(model: str, billions: float, architecture: str) -> None:
    """q8_0 is not q6_k to the digit, also where one was published and the other was not."""
    nats = [_expected(quant, billions, architecture, model).value for quant in _LADDER]
    assert all(finer < coarser for finer, coarser in itertools.pairwise(nats))


def test_small_models_lose_more() -> None:
    """Qwen3 0.6B's q2_k lost 2.455 nats, Llama 3 8B's 0.445 (`quantgap.csv`, `llama.cpp-perplexity.csv`)."""
    small, large = (_expected("q4_k_m", billions, "llama") for billions in (0.135, 8))
    assert small.value > 2 * large.value


def test_an_original_loses_nothing() -> None:
    for quant, architecture in (("bf16", "llama"), ("f16", "qwen3"), ("mxfp4", "gpt-oss")):
        loss = _expected(quant, 20, architecture)
        assert (loss.basis, loss.high, loss.is_estimate) == ("published", 0.0, False)


def test_a_type_that_nobody_scored_has_no_expected_loss() -> None:
    assert expected_loss("qwen3-8b", "tq1_0", 8 * 10**9, "qwen3") is None


@pytest.mark.parametrize(
    ("model", "architecture", "kv_type", "basis", "nats"),
    [
        ("gemma-4-31b", "gemma4", "q8_0", "published", 0.108),
        ("unsloth/gemma-4-26B-A4B-it-GGUF", "gemma4", "q8_0", "published", 0.377),
        ("gemma-4-26b-a4b", "gemma4", "q4_0", "published", 1.088),
        ("gemma-4-12b", "gemma4", "q8_0", "typical", 0.202),
    ],
)
def test_a_cache_loses_what_its_family_does(
    model: str, architecture: str, kv_type: str, basis: str, nats: float
) -> None:
    loss = expected_cache_loss(model, architecture, (kv_type, kv_type))
    assert loss.basis == basis
    assert loss.value == pytest.approx(nats, rel=0.01)


@pytest.mark.parametrize("kv_type", ["q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"])
def test_a_family_without_rows_has_the_range_of_the_others(kv_type: str) -> None:
    """Every type has an estimate; its interval contains both a Qwen3.6 27B and a Gemma 4 26B."""
    loss = expected_cache_loss("granite-4.0-micro", "granite", (kv_type, kv_type))
    fine = expected_cache_loss("qwen3.6-27b", "qwen35", (kv_type, kv_type))
    coarse = expected_cache_loss("gemma-4-26b-a4b", "gemma4", (kv_type, kv_type))
    assert loss.basis == "typical"
    assert loss.low <= fine.value <= coarse.value <= loss.high
    assert 0.001 < loss.value < 0.05


def test_k_and_v_take_half_each() -> None:
    whole, of_v = (expected_cache_loss("gemma-4-31b", "gemma4", (k, "q8_0")) for k in ("q8_0", "f16"))
    assert of_v.value == pytest.approx(whole.value / 2)
    for each in UNQUANTIZED:
        assert expected_cache_loss("gemma-4-31b", "gemma4", (each, "f16")).high == 0


def test_measured_losses_need_disjoint_intervals_and_expected_ones_a_ratio() -> None:
    """Two quants of a model share its error: one is certainly worse although the intervals overlap."""
    coarse, fine = (_expected(quant, 8, "llama") for quant in ("q4_k_m", "q6_k"))
    assert coarse.low < fine.high
    assert is_clearly_above(coarse, fine) and not is_clearly_above(fine, coarse)
    assert not is_clearly_above(_expected("q4_k_s", 8, "llama"), coarse)
    measured = replace(coarse, basis="measured")
    assert not is_clearly_above(measured, fine)
    assert math.isfinite(measured.high) and not measured.is_estimate


def test_an_expected_loss_reads_no_published_rows() -> None:
    """Neither the rows nor the catalog are loaded for it."""
    code = (
        "from ggbench.expect.loss import expected_loss, expected_cache_loss; import ggbench.models.published as p;"
        " expected_loss('qwen3-8b', 'q4_k_m', 8_000_000_000, 'qwen3'); expected_cache_loss('', '', ('q8_0', 'q8_0'));"
        " import sys; print(p.load_published.__wrapped__ is not None, 'ggbench.models.catalog' in sys.modules)"
    )
    result = run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["True", "False"]
