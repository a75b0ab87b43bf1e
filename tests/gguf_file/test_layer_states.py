"""What each layer keeps of a sequence, compared with the caches that llama.cpp makes of the same metadata."""

import json
import re
from dataclasses import dataclass

import pytest

from ggbench.gguf_file.model_file import LayerState
from ggbench.sizing.theory.kv_cache import KvCache, kv_cache
from tests.gguf_file.test_architecture import BASE, EXPERTS, KV_CACHE_OF_METADATA, LATENT, Keys, model_of, run_llama_cpp

WIDE: Keys = {"attention.key_length": 64, "attention.value_length": 64}
SSM: Keys = {
    "ssm.conv_kernel": 4, "ssm.inner_size": 512, "ssm.state_size": 64, "ssm.time_step_rank": 8,
    "ssm.group_count": 2,
}  # fmt: skip
ROUTED: Keys = EXPERTS | {"expert_shared_feed_forward_length": 64, "expert_gating_func": 1}
LORA: Keys = {
    "attention.decay_lora_rank": 32, "attention.iclr_lora_rank": 32, "attention.value_residual_mix_lora_rank": 32,
    "attention.gate_lora_rank": 32,
}  # fmt: skip
SOME_KV: Keys = {"attention.head_count_kv": [0, 0, 2, 0, 0, 4]}
NO_HEADS: Keys = {"attention.head_count": 0}
ALTERNATE: Keys = {"attention.sliding_window_pattern": [1, 1, 0, 1, 1, 0]}
KDA: Keys = {
    "attention.head_count_kv": [0, 0, 0, 1, 0, 0], "attention.key_length": 96, "attention.value_length": 64,
    "attention.key_length_mla": 64, "attention.value_length_mla": 64, "expert_gating_func": 2, "kda.head_dim": 32,
    "ssm.conv_kernel": 4,
}  # fmt: skip


def window(n: int = 128) -> Keys:
    return {"attention.sliding_window": n}


RECURRENT: dict[str, Keys] = {
    "mamba": NO_HEADS | SSM,
    "mamba2": NO_HEADS | SSM,
    "rwkv6": NO_HEADS | {"wkv.head_size": 64, "time_mix_extra_dim": 32, "time_decay_extra_dim": 64},
    "rwkv7": NO_HEADS | LORA | {"wkv.head_size": 64},
    "arwkv7": NO_HEADS | LORA | {"wkv.head_size": 64},
    "jamba": SSM | SOME_KV | ROUTED,
    "granitehybrid": SSM | SOME_KV,
    "granitehybrid with experts": SSM | SOME_KV | ROUTED,
    "plamo2": SSM | SOME_KV | WIDE | {"attention.head_count": [0, 0, 8, 0, 0, 8]},
    "falcon-h1": SSM | WIDE,
    "nemotron_h": SSM | SOME_KV | WIDE | {"feed_forward_length": [0, 512, 0, 0, 512, 0]},
    "qwen3next": SSM | ROUTED | WIDE | {"rope.dimension_count": 64},
    "qwen3next of three": SSM | ROUTED | WIDE | {"rope.dimension_count": 64, "full_attention_interval": 3},
    "qwen35": SSM | WIDE | {"rope.dimension_count": 64, "rope.dimension_sections": [8, 8, 8, 8]},
    "qwen35moe": SSM | ROUTED | WIDE | {"rope.dimension_count": 64, "rope.dimension_sections": [8, 8, 8, 8]},
    "lfm2": SOME_KV | {"shortconv.l_cache": 3},
    "lfm2 with windows": SOME_KV | window() | {"shortconv.l_cache": 3},
    "lfm2moe": SOME_KV | ROUTED | {"shortconv.l_cache": 3},
    "kimi-linear": LATENT | KDA,
    "minimax-01": ROUTED | WIDE | {"residual_scale": 1.0, "rope.dimension_count": 64, "full_attention_interval": 3},
}
WINDOWED: dict[str, Keys] = {
    "gpt-oss": EXPERTS | WIDE | window(),
    "gpt-oss with a period": EXPERTS | WIDE | window() | {"attention.sliding_window_pattern": 3},
    "cohere2moe": EXPERTS | WIDE | window() | {"logit_scale": 1.0},
    "llama4": EXPERTS | WIDE | {"interleave_moe_layer_step": 1},
    "llama4 without": EXPERTS | WIDE | window(0) | {"interleave_moe_layer_step": 1},
    "exaone4": WIDE | {"block_count": 64},
    "exaone4 of 6 layers": WIDE | window(),
    "exaone-moe": EXPERTS | WIDE | window() | {"expert_gating_func": 2},
    "smallthinker": EXPERTS | WIDE | window(512),
    "laguna": EXPERTS | WIDE | window(),
    "mellum": EXPERTS | WIDE | window(),
    "afmoe": EXPERTS | WIDE | window(),
    "muse-glimmer": WIDE | window() | {"logit_scale": 1.0},
    "mimo2": EXPERTS | WIDE | window() | ALTERNATE | {"rope.freq_base_swa": 1e4, "expert_gating_func": 2},
    "step35": EXPERTS | WIDE | window() | ALTERNATE | {"rope.freq_base_swa": 1e4},
    "granite_swa": WIDE | window() | ALTERNATE | {"logit_scale": 1.0},
    "spark2_5": WIDE | window() | ALTERNATE,
    "phi3": window(),
    "qwen3moe": EXPERTS | WIDE,
    "llama": window(),
    "gemma3n": WIDE | window() | {"block_count": 30, "attention.shared_kv_layers": 10},
    "gemma4": window()
    | {
        "attention.key_length": 128, "attention.value_length": 128, "attention.key_length_swa": 64,
        "attention.value_length_swa": 64, "rope.dimension_count": 128, "rope.dimension_count_swa": 64,
        "attention.sliding_window_pattern": [1, 0, 1, 0, 1, 0], "attention.shared_kv_layers": 2,
        "embedding_length_per_layer_input": 64,
    },
}  # fmt: skip

N_SEQUENCES = 64
"""The log rounds to 0.01 MiB; over this number of states, a difference of 42 elements in one of them shows."""


def kept(kv: KvCache) -> tuple[float, float]:
    """Bytes of one position in the layers without a window, and in those with one."""
    full, windowed = (sum(each.n_bytes for each in kv.growths if bool(each.limit) == limited) for limited in (0, 1))
    return full, windowed


@dataclass(frozen=True)
class Caches:
    kv_bytes: tuple[float, ...]
    """One for each KV cache of 1,024 cells: the layers without a window, then those with one."""
    state_bytes: float
    """For one sequence."""


def caches_of(architecture: str, keys: Keys) -> Caches:
    """Let llama.cpp make a model and a context of metadata alone."""
    metadata = {"general.architecture": architecture, "tokenizer.ggml.model": "none"}
    script = KV_CACHE_OF_METADATA.replace("make_context(llama", f"n_seq_max = {N_SEQUENCES}\nmake_context(llama")
    log = run_llama_cpp(script, json.dumps(metadata | {f"{architecture}.{key}": keys[key] for key in keys}))
    kv = re.findall(r"llama_kv_cache: size = .*K \(f16\): +([\d.]+) MiB, V \(f16\): +([\d.]+) MiB", log)
    state = re.findall(r"llama_memory_recurrent: size = .*R \(f32\): +([\d.]+) MiB, S \(f32\): +([\d.]+) MiB", log)
    assert kv or state, log[-2000:]
    in_mib = [sum(map(float, pair)) for pair in kv], sum(float(size) for pair in state for size in pair)
    return Caches(tuple(mib * 2**20 for mib in in_mib[0]), in_mib[1] * 2**20 / N_SEQUENCES)


@pytest.mark.llama
@pytest.mark.parametrize("case", RECURRENT | WINDOWED)
def test_caches_are_those_that_llama_cpp_makes(case: str) -> None:
    architecture, keys = case.split()[0], BASE | (RECURRENT | WINDOWED)[case]
    logged = caches_of(architecture, keys)
    kv = kv_cache(model_of(architecture, keys))
    counted = [1024 * n_bytes for n_bytes in kept(kv)]
    has_windows = len(logged.kv_bytes) == 2
    assert bool(kv.breaks) == has_windows
    expected = logged.kv_bytes if has_windows else (sum(logged.kv_bytes), 0.0)
    assert counted == pytest.approx(expected, abs=0.011 * 2**20)
    assert kv.state_bytes == pytest.approx(logged.state_bytes, abs=0.011 * 2**20 / N_SEQUENCES)
    assert (kv.state_bytes > 0) == (case in RECURRENT)


def test_layers_that_share_a_cache_store_it_once_and_read_it_each() -> None:
    states = model_of("gemma4", BASE | WINDOWED["gemma4"]).states
    assert [len(state.kept) for state in states] == [1, 1, 1, 1, 0, 0]
    assert states[4] == LayerState(read=states[2].read) and states[4].window == 128
    kv = kv_cache(model_of("gemma4", BASE | WINDOWED["gemma4"]))
    full, windowed = 2 * (128 + 128) * 2, 2 * (64 + 64) * 2
    assert kept(kv) == (2 * full, 2 * windowed)
    assert (kv.read_growth(), kv.read_growth(1)) == (3 * full, 3 * (full + windowed))
    assert float(kv.read_bytes(128 + 10)) == 128 * 3 * (full + windowed) + 10 * 3 * full


INDEXER: Keys = {"attention.indexer.head_count": 4, "attention.indexer.key_length": 64, "attention.indexer.top_k": 128}
MLA: Keys = LATENT | {
    "attention.head_count_kv": 1, "attention.key_length": 96, "attention.value_length": 64,
    "attention.key_length_mla": 64, "attention.value_length_mla": 64, "expert_gating_func": 2,
}  # fmt: skip
HYPER: Keys = {
    "hyper_connection.count": 4, "hyper_connection.sinkhorn_iterations": 2, "hyper_connection.epsilon": 1e-6,
}  # fmt: skip
SPARSE: dict[str, Keys] = {
    "deepseek32": MLA | INDEXER,
    "glm-dsa": MLA | INDEXER,
    "glm-dsa with shared indexers": MLA | INDEXER | {"attention.indexer.types": [1, 1, 1, 0, 0, 0]},
    "minimax-m3": EXPERTS | WIDE | INDEXER
    | {
        "attention.indexer.head_count": 2, "attention.indexer.block_size": 64, "attention.indexer.local_blocks": 1,
        "rope.dimension_count": 32, "expert_gating_func": 2,
    },
    "qwen4exp": SSM | ROUTED | WIDE | INDEXER
    | {
        "hyper_connection.count": 2, "hyper_connection.low_rank": 32, "rope.dimension_sections": [8, 8, 8, 8],
        "rope.dimension_count": 64, "attention.compress_ratios": [0, 0, 0, 4, 0, 0],
    },
    "glm5-next": MLA | KDA | INDEXER | HYPER
    | {
        "attention.indexer.kpool": 4, "attention.key_length": 64, "rope.dimension_count": 0,
        "attention.head_count_kv": [0, 1, 1, 0, 1, 0], "attention.indexer.types": [0, 1, 0, 0, 1, 0],
    },
    "deepseek4": EXPERTS | WIDE | INDEXER | HYPER | window()
    | {
        "attention.q_lora_rank": 32, "attention.head_count_kv": 1, "attention.output_group_count": 2,
        "attention.output_lora_rank": 32, "attention.compress_rope_freq_base": 1e4, "hash_layer_count": 1,
        "attention.compress_ratios": [0, 4, 128, 4, 128, 0], "expert_gating_func": 4, "swiglu_clamp_exp": 10.0,
        "expert_weights_scale": 1.0, "expert_weights_norm": 1, "rope.dimension_count": 32,
    },
}  # fmt: skip


@pytest.mark.llama
@pytest.mark.parametrize("case", SPARSE)
def test_caches_of_sparse_attention_are_those_that_llama_cpp_makes(case: str) -> None:
    """With windows as long as the context, as the script asks for, and 256 rows at least of compressed positions."""
    architecture, keys = case.split()[0], BASE | SPARSE[case]
    metadata = {"general.architecture": architecture, "tokenizer.ggml.model": "none"}
    as_bool = "    elif name.endswith(b'norm'): base.gguf_set_val_bool(gguf, name, ctypes.c_bool(value))\n"
    script = KV_CACHE_OF_METADATA.replace(
        "    elif isinstance(value, float)", f"{as_bool}    elif isinstance(value, float)"
    )
    log = run_llama_cpp(script, json.dumps(metadata | {f"{architecture}.{key}": keys[key] for key in keys}))
    kv = re.findall(r"llama_kv_cache: size = .*K \(f16\): +([\d.]+) MiB, V \(f16\): +([\d.]+) MiB", log)
    state = re.findall(r"(?:llama_memory_recurrent: size =|layers = \d+, size =) +([\d.]+) MiB", log)
    assert kv, log[-2000:]
    model = model_of(architecture, keys)
    assert not model.no_kv_reason
    counted = sum(rows.n_bytes() * max(1024, 256 * rows.every) for state in model.states for rows in state.kept)
    assert counted / 2**20 == pytest.approx(sum(float(k) + float(v) for k, v in kv), abs=0.006 * 2 * len(kv))
    assert kv_cache(model).state_bytes / 2**20 == pytest.approx(sum(map(float, state)), abs=0.006 * len(state))
