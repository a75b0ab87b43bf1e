"""Settings that llama-server passes to llama.cpp, field by field, and those that ggbench changes, with reasons.

ggbench uses llama-server's defaults, since people run it; those of the C API differ. The reference is
`llama-server -m FILE -c N -np 1`. Source: llama.cpp's `common_params` in common.h, its functions
`common_model_params_to_llama` and `common_context_params_to_llama`, and `load_model` in server-context.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Value: TypeAlias = "int | float | bool | None"


MODEL: Mapping[str, Value] = {
    "devices": None, "tensor_buft_overrides": None, "n_gpu_layers": -1, "split_mode": 1, "load_mode": -1,
    "lazy_mode": 1, "main_gpu": 0, "tensor_split": None, "progress_callback": None, "progress_callback_user_data": None,
    "kv_overrides": None, "vocab_only": False, "check_tensors": False, "use_extra_bufts": True, "no_host": False,
    "no_alloc": False, "load_mtp": False,
}  # fmt: skip
"""Every field of `llama_model_params`: enumerators as their numbers, None for a null pointer or an empty list."""

CONTEXT: Mapping[str, Value] = {
    "n_ctx": 0, "n_batch": 2048, "n_ubatch": 512, "n_seq_max": 1, "n_rs_seq": 0, "n_outputs_max": 1,
    "n_outputs_max_per_seq": 1, "n_threads": None, "n_threads_batch": None, "ctx_type": 0, "rope_scaling_type": -1,
    "pooling_type": -1, "attention_type": -1, "flash_attn_type": -1, "rope_freq_base": 0.0, "rope_freq_scale": 0.0,
    "yarn_ext_factor": -1.0, "yarn_attn_factor": -1.0, "yarn_beta_fast": -1.0, "yarn_beta_slow": -1.0,
    "yarn_orig_ctx": 0, "defrag_thold": -1.0, "cb_eval": None, "cb_eval_user_data": None, "type_k": 1, "type_v": 1,
    "abort_callback": None, "abort_callback_data": None, "embeddings": False, "offload_kqv": True, "no_perf": False,
    "op_offload": True, "swa_full": False, "kv_unified": False, "samplers": None, "n_samplers": 0, "ctx_other": None,
}  # fmt: skip
"""Every field of `llama_context_params`; the numbers of threads depend on the machine."""

DIFFERENCES: Mapping[str, str] = {
    "n_ctx": "enough for the command; llama-server uses the training context, or the largest that fits",
    "n_threads": "one per core available to the process; llama-server counts the machine's",
    "n_threads_batch": "as n_threads",
    "devices": "none when planning for or limiting main memory: a GPU driver also takes address space",
    "load_mode": "read, not mapped, under a main memory limit, which would count mapped pages twice",
    "no_alloc": "set by plan, to allocate nothing; llama-server's --fit sets it too",
    "--parallel": "one sequence (-np 1); llama-server defaults to 4 slots that share one cache",
    "--fit": "off; llama-server reduces n_ctx and -ngl, if not set, until the model fits",
    "--warmup": "no empty run after loading; decode warms up with unreported tokens",
    "--cache-ram": "no prompt cache; llama-server's grows up to 8 GiB of main memory",
    "--ctx-checkpoints": "off; llama-server keeps up to 32 copies of what a slot cannot roll back",
}
"""Defaults in which ggbench differs from llama-server, by the field above or by llama-server's option."""

CACHE_RAM_BYTES = 8192 << 20
"""The largest prompt cache of llama-server, which grows with use in main memory: `cache_ram_mib` in common.h."""

DRAFT_TOKENS = 3
"""Tokens that llama-server drafts at a time: `common_params_speculative_draft::n_max` in common.h. Its target context
has an output for each, and with MTP layers as many copies of each recurrent state, to go back to."""
LOADS_MTP_IF_ASKED = frozenset({
    "bailingmoe3", "cohere2moe", "deepseek2", "deepseek32", "deepseek4", "glm-dsa", "glm4moe", "glm5-next", "hy_v3",
    "mimo2", "nemotron_h", "nemotron_h_moe", "qwen35", "qwen35moe", "qwen3next", "step35",
})  # fmt: skip
"""Architectures whose MTP layers llama.cpp leaves in the file without `load_mtp`; it always loads those of others.

Source: src/models of the llama.cpp in llama-cpp-python 0.3.36.
"""
ROLLS_BACK = frozenset({
    "bailingmoe3", "deepseek4", "glm5-next", "kimi-k3", "lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe", "qwen35",
    "qwen35moe", "qwen4exp",
})  # fmt: skip
"""Architectures with copies of each recurrent state, to go back to.

Source: `llm_arch_supports_rs_rollback` in llama-arch.cpp, in the same version.
"""


def set_fields(
    params: Any,  # noqa: ANN401 - a structure of llama_cpp's
    defaults: Mapping[str, Value],
    wanted: Mapping[str, Any],
) -> list[str]:
    """Set the fields that `params` has, by name, to what is wanted, else to the default, unless that is None.

    Returns the names that are wanted other than by default but that this llama.cpp has no field for. Its other fields
    stay as it set them.
    """
    lacking = field_changes(type(params), defaults)[1]
    for name, value in {**defaults, **wanted}.items():
        if value is not None and name not in lacking:
            setattr(params, name, value)
    return [name for name in lacking if wanted.get(name, defaults[name]) != defaults[name]]


def field_changes(structure: Any, defaults: Mapping[str, Value]) -> tuple[list[str], list[str]]:  # noqa: ANN401
    """Return the fields of a structure of llama_cpp's that ggbench does not know, and those that it lacks."""
    names = [name for name, *_ in structure._fields_]
    return [name for name in names if name not in defaults], [name for name in defaults if name not in names]
