"""Write a setup as flags of llama.cpp's programs: for the commands that ggbench prints, and those that it runs.

Source: llama.cpp's common/arg.cpp, version 0.3.36 of llama-cpp-python. Only options that differ from llama-server's
defaults are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ggbench.engines.llama.config import LlamaConfig
from ggbench.fields import joined

ALL_LAYERS = 999
"""More layers than any model has. llama-server accepts `all` only since it has `auto`, its default, which may leave
layers in main memory."""

_DEFAULT = LlamaConfig()
_OF_CONTEXT = {
    "-c": "n_ctx", "-b": "n_batch", "-ub": "n_ubatch", "-ctk": "type_k", "-ctv": "type_v", "-fa": "flash_attn",
}  # fmt: skip
_OF_PLACEMENT = {
    "-sm": "split_mode", "-mg": "main_gpu", "-dev": "devices", "-ts": "tensor_split", "--rpc": "rpc_servers",
    "-ot": "override_tensor", "-ncmoe": "n_cpu_moe", "-t": "threads", "-tb": "threads_batch",
}  # fmt: skip
_OF_DRAFTS = {
    "--spec-draft-n-max": "spec_draft_n_max", "-ctkd": "type_k_draft", "-ctvd": "type_v_draft",
}  # fmt: skip


def server_flags(
    setup: LlamaConfig,
    *,
    on_gpu: bool,
    draft: Sequence[str] = (),
    spec_type: str = "",
    n_draft: int | None = None,
) -> list[str]:
    """Return llama-server's flags, with the slots, whose number it would otherwise choose."""
    unified = ["-kvu"] if setup.kv_unified and setup.n_seq_max > 1 else []
    drafts = _draft_flags(setup, draft, spec_type, n_draft)
    return [*load_flags(setup, on_gpu=on_gpu), "-np", str(setup.n_seq_max), *unified, *drafts]


def _draft_flags(setup: LlamaConfig, draft: Sequence[str], spec_type: str, n_draft: int | None) -> list[str]:
    """Return the flags of what drafts; `draft` names a draft's file.

    Without a type of speculation llama-server uses neither a draft model nor MTP layers; by default it is the draft's
    or that of the MTP layers.
    """
    if not spec_type and draft:
        spec_type = "draft-simple"
    elif not spec_type and setup.mtp:
        spec_type = "draft-mtp"
    words = [*draft, *(["--spec-type", spec_type] if spec_type else [])]
    words += ["-ngld", "0"] if draft and setup.n_gpu_layers == 0 else []
    if n_draft is not None:
        words += ["--spec-draft-n-max", str(n_draft)]
        setup = replace(setup, spec_draft_n_max=_DEFAULT.spec_draft_n_max)
    return words + _unless_default(setup, _OF_DRAFTS)


def load_flags(setup: LlamaConfig, *, on_gpu: bool) -> list[str]:
    """Return the flags of a load; with `on_gpu`, they ask for all layers explicitly."""
    if setup.main_gpu is not None:
        setup = replace(setup, split_mode="none")
    words = _unless_default(setup, _OF_CONTEXT)
    if setup.n_gpu_layers >= 0:
        words += ["-ngl", str(setup.n_gpu_layers)]
    elif on_gpu:
        words += ["-ngl", str(ALL_LAYERS)]
    words += _unless_default(setup, _OF_PLACEMENT)
    words += [] if setup.load_mode == "mmap" else ["-lm", setup.load_mode]
    switches = {"-cmoe": setup.cpu_moe, "-nkvo": not setup.kv_offload, "--swa-full": setup.swa_full}
    return words + [option for option, is_on in switches.items() if is_on]


def _unless_default(setup: LlamaConfig, options: Mapping[str, str]) -> list[str]:
    """Return the options, by the names of their fields, whose values are not the defaults."""
    words = []
    for option, name in options.items():
        value = getattr(setup, name)
        if value != getattr(_DEFAULT, name):
            words += [option, joined(value) if isinstance(value, tuple) else str(value)]
    return words
