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
from tests.gguf_file.test_architecture import BASE, KV_CACHE_OF_METADATA, model_of, run_llama_cpp

LOG = Path(__file__).parents[2] / "data" / "llama_cpu_0.5b_q8_0.log"
WINDOW = 1024


def drawn(model_id: str = "qwen1.5-0.5b") -> ModelFile:
    return build_model(load_catalog().model(model_id).hyper, model_id)


def windowed(*has_window: bool) -> ModelFile:
    """24 layers, of which those with the flag have a window of 1024."""
    file = drawn()
    pairs = zip(file.states, has_window, strict=True)
    states = tuple(msgspec.structs.replace(state, window=WINDOW if flag else None) for state, flag in pairs)
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
    assert kv.window is None


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
    assert (kv.full.n_bytes, kv.windowed.n_bytes) == (n_full * per_layer, n_windowed * per_layer)
    assert kv.window == 256


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
    assert (last.full.n_bytes, last.windowed.n_bytes, last.window) == (4096, 5 * 4096, WINDOW)
    everywhere = kv_cache(windowed(*[True] * 24))
    assert everywhere.n_that_fit(24 * 4096 * WINDOW) == WINDOW
    assert everywhere.n_that_fit(24 * 4096 * WINDOW + 1) == 2**32 - 1


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
