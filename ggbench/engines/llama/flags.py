"""Write a setup as flags of llama.cpp's programs: for the commands that ggbench prints, and those that it runs.

Source: llama.cpp's common/arg.cpp, version 0.3.36 of llama-cpp-python. Only options that differ from llama-server's
defaults are written.
"""

from __future__ import annotations

from collections.abc import Sequence

from ggbench.engines.llama.config import LlamaConfig

ALL_LAYERS = 999
"""More layers than any model has. llama-server accepts `all` only since it has `auto`, its default, which may leave
layers in main memory."""

_DEFAULT = LlamaConfig()
_LOAD_MODES = {(False, False): "none", (False, True): "mlock", (True, True): "mmap+mlock"}
"""llama.cpp's `--load-mode` by (mmap, mlock)."""


def server_flags(
    setup: LlamaConfig, *, on_gpu: bool, draft: Sequence[str] = (), spec_type: str = "", n_draft: int | None = None
) -> list[str]:
    """Return llama-server's flags, with the slots, whose number it would otherwise choose."""
    unified = ["-kvu"] if setup.kv_unified and setup.n_seq_max > 1 else []
    drafts = draft_flags(setup, draft, spec_type, n_draft)
    return [*load_flags(setup, on_gpu=on_gpu), "-np", str(setup.n_seq_max), *unified, *drafts]


def draft_flags(setup: LlamaConfig, draft: Sequence[str], spec_type: str = "", n_draft: int | None = None) -> list[str]:
    """Return the flags of what drafts, which llama-server and llama-cli share; `draft` names a draft's file.

    Without a type of speculation they use neither a draft model nor MTP layers; by default it is the draft's or that
    of the MTP layers.
    """
    spec_type = spec_type or ("draft-simple" if draft else "draft-mtp" if setup.mtp else "")
    words = [*draft, *(["--spec-type", spec_type] if spec_type else [])]
    words += ["-ngld", "0"] if draft and setup.n_gpu_layers == 0 else []
    words += [] if n_draft is None else ["--spec-draft-n-max", str(n_draft)]
    for option, name in (("-ctkd", "type_k_draft"), ("-ctvd", "type_v_draft")):
        words += _unless_default(option, setup, name)
    return words


def load_flags(setup: LlamaConfig, *, on_gpu: bool) -> list[str]:
    """Return the flags that llama-server and llama-cli share; with `on_gpu`, they ask for all layers explicitly."""
    words = [] if setup.n_ctx is None else ["-c", str(setup.n_ctx)]
    for option, name in (("-b", "n_batch"), ("-ub", "n_ubatch"), ("-ctk", "type_k"), ("-ctv", "type_v")):
        words += _unless_default(option, setup, name)
    words += _unless_default("-fa", setup, "flash_attn")
    if setup.n_gpu_layers >= 0:
        words += ["-ngl", str(setup.n_gpu_layers)]
    elif on_gpu:
        words += ["-ngl", str(ALL_LAYERS)]
    split_mode = "none" if setup.main_gpu is not None else setup.split_mode
    words += [] if split_mode == _DEFAULT.split_mode else ["-sm", split_mode]
    words += _unless_default("-mg", setup, "main_gpu")
    words += ["-ts", ",".join(f"{share:g}" for share in setup.tensor_split)] if setup.tensor_split else []
    words += ["--rpc", ",".join(setup.rpc_servers)] if setup.rpc_servers else []
    words += ["-ot", ",".join(setup.override_tensor)] if setup.override_tensor else []
    words += ["-cmoe"] if setup.cpu_moe else []
    for option, name in (("-ncmoe", "n_cpu_moe"), ("-t", "threads"), ("-tb", "threads_batch")):
        words += _unless_default(option, setup, name)
    load_mode = _LOAD_MODES.get((setup.mmap, setup.mlock))
    words += [] if load_mode is None else ["-lm", load_mode]
    words += [] if setup.kv_offload else ["-nkvo"]
    return [*words, "--swa-full"] if setup.swa_full else words


def _unless_default(option: str, setup: LlamaConfig, name: str) -> list[str]:
    value = getattr(setup, name)
    return [] if value == getattr(_DEFAULT, name) else [option, str(value)]
