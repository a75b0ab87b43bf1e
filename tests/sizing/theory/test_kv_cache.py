"""The KV cache against llama.cpp's own log, and against sums written out."""

import json
import re
from pathlib import Path

import msgspec.structs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggbench.errors import UnknownName, Unsupported
from ggbench.gguf_file.layout import build_model
from ggbench.gguf_file.model_file import ModelFile
from ggbench.models.catalog import load_catalog
from ggbench.sizing.theory.kv_cache import KvCache, kv_cache
from ggbench.sizing.theory.limits import decode_line
from ggbench.sizing.theory.weights import Parameters, uniform_weights
from ggbench.stats.decode_timing import Break
from tests.gguf_file.test_architecture import BASE, KV_CACHE_OF_METADATA, model_of, run_llama_cpp
from tests.gguf_file.test_layer_states import SPARSE, kept

LOG = Path(__file__).parents[2] / "data" / "llama_cpu_0.5b_q8_0.log"
WINDOW = 1024


def drawn(model_id: str = "qwen1.5-0.5b") -> ModelFile:
    return build_model(load_catalog().model(model_id).hyper, model_id)


def windowed(*has_window: bool) -> ModelFile:
    """24 layers, of which those with the flag have a window of 1024."""
    file = drawn()
    pairs = zip(file.states, has_window, strict=True)
    states = tuple(state.within(WINDOW if flag else None) for state, flag in pairs)
    return msgspec.structs.replace(file, sliding_window=WINDOW, states=states)


FIVE_OF_SIX = kv_cache(windowed(*(layer % 6 < 5 for layer in range(24))))


def test_bytes_are_those_that_llama_cpp_allocates() -> None:
    match = re.search(r"llama_kv_cache: size = +([\d.]+) MiB \( *(\d+) cells", LOG.read_text(encoding="utf-8"))
    assert match is not None
    assert kv_cache(drawn()).cached_bytes(int(match[2])) == float(match[1]) * (1 << 20)


@pytest.mark.parametrize("architecture", ["brand-new", "phi3"])
def test_a_window_that_no_layer_is_known_to_have_gives_an_upper_bound(architecture: str) -> None:
    kv = kv_cache(model_of(architecture, BASE | {"attention.sliding_window": WINDOW}))
    assert float(kv.cached_bytes(100_000)) == 100_000 * 6 * 2 * 64 * 2
    assert kv.breaks == ()


def test_a_recurrent_state_is_kept_and_read_at_every_length() -> None:
    keys = {"ssm.conv_kernel": 4, "ssm.inner_size": 512, "ssm.state_size": 64, "ssm.group_count": 2}
    kv = kv_cache(model_of("qwen3next", BASE | keys | {"ssm.time_step_rank": 8}))
    state_bytes = 5 * 4 * (3 * (512 + 2 * 2 * 64) + 64 * 512)
    per_token = 2 * (32 + 32) * 2
    assert kv.state_bytes == state_bytes
    assert [kv.cached_bytes(0), kv.cached_bytes(1000)] == [state_bytes, state_bytes + 1000 * per_token]
    assert kv.read_bytes(1000) == kv.cached_bytes(1000)
    assert kv.n_that_fit(state_bytes + 10 * per_token) == 10
    assert kv.n_that_fit(state_bytes - 1) == 0


@pytest.mark.llama
@pytest.mark.parametrize("architecture", ["cohere2", "gemma2", "gemma3", "gemma3n", "olmo2", "plamo3"])
def test_layers_with_a_window_are_llama_cpps_where_the_header_does_not_say(architecture: str) -> None:
    keys = BASE | {
        "block_count": 26, "attention.key_length": 64, "attention.value_length": 64,
        "attention.sliding_window": 256, "logit_scale": 1.0, "rope.dimension_count": 32,
    }  # fmt: skip
    metadata = {f"{architecture}.{key}": value for key, value in keys.items()}
    metadata |= {"general.architecture": architecture, "tokenizer.ggml.model": "none"}
    log = run_llama_cpp(KV_CACHE_OF_METADATA, json.dumps(metadata))
    n_full, n_windowed = (int(count) for count in re.findall(r"llama_kv_cache: size = .* (\d+) layers", log))
    kv = kv_cache(model_of(architecture, keys))
    per_layer = 2 * (64 + 64) * 2
    assert kept(kv) == (n_full * per_layer, n_windowed * per_layer)
    assert kv.breaks == (256,)


@pytest.mark.parametrize("kv", [FIVE_OF_SIX, kv_cache(drawn())], ids=["windowed", "full"])
def test_prefill_is_the_sum_over_the_tokens(kv: KvCache) -> None:
    for n in (1, WINDOW - 1, WINDOW, WINDOW + 1, 3000):
        tokens = range(1, n + 1)
        assert kv.prefill_bytes(n) == pytest.approx(sum(map(kv.cached_bytes, tokens)), rel=1e-12)
        assert kv.prefill_flop(n) == pytest.approx(sum(map(kv.attention_flop, tokens)), rel=1e-12)


@given(n_bytes=st.integers(1, 1 << 40), kv=st.sampled_from([FIVE_OF_SIX, kv_cache(drawn())]))
def test_what_fits_is_the_most_that_fits(n_bytes: int, kv: KvCache) -> None:
    """The positions found take no more than the memory, and one more would."""
    n = kv.n_that_fit(n_bytes)
    assert kv.cached_bytes(n) <= n_bytes < kv.cached_bytes(n + 1)


def test_types_of_k_and_v_count_apart() -> None:
    """q8_0 has 34 bytes for 32 numbers; 24 layers of 1024 numbers each in K and in V."""
    assert kv_cache(drawn(), "q8_0", "f16").bytes_per_token == 24 * 1024 * 34 // 32 + 24 * 1024 * 2
    with pytest.raises(UnknownName):
        kv_cache(drawn(), "q9_0")


def test_grouped_heads_shrink_the_cache_and_not_the_operations() -> None:
    """Qwen2.5 7B has 28 query and 4 KV heads of 128: 56 KiB for each token, attention over all 28."""
    kv = kv_cache(drawn("qwen2.5-7b"))
    assert (kv.bytes_per_token, kv.attention_flop(1)) == (56 << 10, 2 * 28 * (28 * 128 * 2))


def test_a_window_stops_the_growth_of_its_layers() -> None:
    """20 of 24 layers keep 1024 positions; where all do, every length fits with them."""
    assert FIVE_OF_SIX.cached_bytes(WINDOW) == 24 * 4096 * WINDOW
    assert FIVE_OF_SIX.cached_bytes(WINDOW + 10) == 24 * 4096 * WINDOW + 10 * 4 * 4096
    last = kv_cache(windowed(*(layer % 6 < 5 for layer in range(24))), layers=range(18, 24))
    assert (kept(last), last.breaks) == ((4096, 5 * 4096), (WINDOW,))
    everywhere = kv_cache(windowed(*[True] * 24))
    assert everywhere.n_that_fit(24 * 4096 * WINDOW - 1) == WINDOW - 1
    assert everywhere.n_that_fit(24 * 4096 * WINDOW) == 2**32 - 1


def test_a_state_without_kv_fits_at_every_length() -> None:
    keys = {"attention.head_count": 0, "ssm.conv_kernel": 4, "ssm.inner_size": 512, "ssm.state_size": 64}
    kv = kv_cache(model_of("mamba", BASE | keys | {"ssm.time_step_rank": 8}))
    assert (kv.bytes_per_token, kv.state_bytes) == (0, 6 * 4 * (3 * 512 + 64 * 512))
    assert [kv.n_that_fit(kv.state_bytes - less) for less in (0, 1)] == [2**32 - 1, 0]


@pytest.mark.parametrize("field", ["n_head", "n_embd", "head_dim_k"])
def test_a_missing_hyperparameter_is_an_error(field: str) -> None:
    file = msgspec.structs.replace(drawn(), **{field: (0,) * 24 if field == "n_head" else 0})
    with pytest.raises(Unsupported, match="the header lacks"):
        kv_cache(file)


@pytest.mark.parametrize(
    ("case", "rising", "budget", "beyond"),
    [
        # six latent layers of 96 elements; a key of 64 in each, or in three of them
        ("deepseek32", 6 * 2 * (96 + 64), 128, 6 * 2 * 64),
        ("glm-dsa with shared indexers", 2 * (6 * 96 + 3 * 64), 128, 2 * 3 * 64),
        # two heads of 64 in K and V; the first of six layers is dense, and 128 blocks of 64 are chosen in the others
        ("minimax-m3", 2 * (6 * 256 + 5 * 64), 128 * 64, 2 * (256 + 5 * 64)),
        # one layer with attention: whole blocks of 4, and the last one
        ("qwen4exp", 2 * (256 + 64), 128 + 3, 2 * 64),
        # three layers with a latent of 64, two with an indexer whose keys are pooled by 4
        ("glm5-next", 2 * (3 * 64 + 2 * 64 / 4), 128 + 3, 2 * 2 * 64 / 4),
    ],
)
def test_beyond_its_budget_sparse_attention_reads_the_keys_of_its_indexer(
    case: str, rising: float, budget: int, beyond: float
) -> None:
    """Bytes of one position more, in f16. Sources: those of `_sparse_states`."""
    kv = kv_cache(model_of(case.split()[0], BASE | SPARSE[case]))
    assert kv.breaks == (budget,)
    assert kv.read_bytes(budget) - kv.state_bytes == budget * rising
    assert kv.read_bytes(budget + 1000) - kv.read_bytes(budget) == 1000 * beyond
    assert (kv.read_growth(1), kv.read_growth()) == (rising, beyond)


def test_deepseek4_reads_a_window_then_compressed_positions_up_to_its_budget() -> None:
    """Six layers keep 128 positions of 64; of two of them each has a row for 4 positions, of two for 128. All rows are
    copied, then 128 rows of 4 positions and all of 128 are attended to; a key of 64 is read for each 4.
    """
    kv = kv_cache(model_of("deepseek4", BASE | SPARSE["deepseek4"]))
    copied, keys = 2 * 128 / 4 + 2 * 128 / 128, 2 * 128 / 4
    assert kv.breaks == (128, 4 * 128)
    assert kv.read_growth() == copied + keys + 2 * 128 / 128
    assert kv.read_growth(200) == kv.read_growth() + 2 * 128 / 4
    assert kv.read_growth(1) == kv.read_growth(200) + 6 * 128
    states = 2 * 4 * 2 * (2 * 8 * (64 + 64)) + 2 * 4 * 2 * 128 * 64
    assert kv.state_bytes == states


def test_decoding_slows_down_less_beyond_the_budget() -> None:
    """W before and after it, at 1 GB/s, and the latency in between."""
    file = model_of("deepseek32", BASE | SPARSE["deepseek32"])
    parameters = Parameters(layers=10**6, experts=0, lm_head=0, embedding=0)
    line = decode_line(uniform_weights(parameters, 16), kv_cache(file), 1e9)
    assert line.breaks == (Break(128, 1e9 / 1920 / 1e3),)
    assert line.w_tokens_per_ms == pytest.approx(1e6 / 768)
    assert line.ms(128) - line.ms(1) == pytest.approx(127 * 1920 / 1e6)
    assert line.ms(1128) - line.ms(128) == pytest.approx(1000 * 768 / 1e6)
