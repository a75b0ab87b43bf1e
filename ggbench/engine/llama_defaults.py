"""What llama-server passes to llama.cpp, field by field, and where ggbench passes something else and why.

Its defaults are ggbench's, since they are what people run; those of the C API differ. The reference is
`llama-server -m FILE -c N -np 1`. Source: llama.cpp's `common_params` in common.h, its functions
`common_model_params_to_llama` and `common_context_params_to_llama`, and `load_model` in server-context.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Value: TypeAlias = "int | float | bool | None"


@dataclass(frozen=True, slots=True)
class Default:
    """One field of a structure of llama.cpp's."""

    server: Value = None
    """What llama-server passes: enumerators as their numbers, None for a null pointer or an empty list."""
    reason: str = ""
    """When and why ggbench passes something else that nobody asked for; empty where it never does."""


MODEL: Mapping[str, Default] = {
    "devices": Default(
        reason="none where main memory is planned for or limited, as a GPU's driver takes address space too"
    ),
    "tensor_buft_overrides": Default(),
    "n_gpu_layers": Default(-1),
    "split_mode": Default(1),
    "load_mode": Default(
        -1, "the file is read, not mapped, under a limit of main memory, which would count its pages twice"
    ),
    "lazy_mode": Default(1),
    "main_gpu": Default(0),
    "tensor_split": Default(),
    "progress_callback": Default(reason="its own, as llama-server passes its own"),
    "progress_callback_user_data": Default(),
    "kv_overrides": Default(),
    "vocab_only": Default(False),
    "check_tensors": Default(False),
    "use_extra_bufts": Default(True),
    "no_host": Default(False),
    "no_alloc": Default(False, "a plan allocates nothing; llama-server does the same to fit a model"),
    "load_mtp": Default(False),
}
"""Every field of `llama_model_params`."""

CONTEXT: Mapping[str, Default] = {
    "n_ctx": Default(0, "what the command needs; llama-server takes the training context, or less where it fits less"),
    "n_batch": Default(2048),
    "n_ubatch": Default(512),
    "n_seq_max": Default(1),
    "n_rs_seq": Default(0),
    "n_outputs_max": Default(1),
    "n_outputs_max_per_seq": Default(1),
    "n_threads": Default(None, "one for each core that the process may use; llama-server counts the machine's"),
    "n_threads_batch": Default(None, "as n_threads"),
    "ctx_type": Default(0),
    "rope_scaling_type": Default(-1),
    "pooling_type": Default(-1),
    "attention_type": Default(-1),
    "flash_attn_type": Default(-1),
    "rope_freq_base": Default(0.0),
    "rope_freq_scale": Default(0.0),
    "yarn_ext_factor": Default(-1.0),
    "yarn_attn_factor": Default(-1.0),
    "yarn_beta_fast": Default(-1.0),
    "yarn_beta_slow": Default(-1.0),
    "yarn_orig_ctx": Default(0),
    "defrag_thold": Default(-1.0),
    "cb_eval": Default(),
    "cb_eval_user_data": Default(),
    "type_k": Default(1),
    "type_v": Default(1),
    "abort_callback": Default(),
    "abort_callback_data": Default(),
    "embeddings": Default(False),
    "offload_kqv": Default(True),
    "no_perf": Default(False),
    "op_offload": Default(True),
    "swa_full": Default(False),
    "kv_unified": Default(False),
    "samplers": Default(),
    "n_samplers": Default(0),
    "ctx_other": Default(),
}
"""Every field of `llama_context_params`."""

BEYOND: Mapping[str, str] = {
    "--parallel": "one sequence, as -np 1; llama-server takes 4 slots that share one cache unless it is given",
    "--fit": "off: llama-server puts fewer layers on a GPU, or shortens an n_ctx that was not given, until it fits",
    "--warmup": "no empty run after the load; a decode warms up with tokens that it does not report",
    "--cache-ram": "no cache of earlier prompts; llama-server's takes up to 8 GiB of main memory as it is used",
    "--ctx-checkpoints": "none; llama-server keeps up to 32 copies of a sliding-window cache as it is used",
}
"""What llama-server does besides, by its option, with what ggbench does instead."""


def set_defaults(params: Any, defaults: Mapping[str, Default]) -> None:  # noqa: ANN401 - a structure of llama_cpp's
    """Set every field of `params` to what llama-server passes; those it leaves empty stay as they are."""
    for name, default in defaults.items():
        if default.server is not None:
            setattr(params, name, default.server)
