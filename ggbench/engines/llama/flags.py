"""Write a setup as flags of llama.cpp's programs: for the commands that ggbench prints, and those that it runs.

A field's flag is the first of its option. Source: llama.cpp's common/arg.cpp, version 0.3.36 of llama-cpp-python. Only
options that differ from llama-server's defaults are written.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from msgspec.structs import replace

from ggbench.engines.llama.config import LlamaConfig
from ggbench.fields import defaults_of, joined, options_of

ALL_LAYERS = 999
"""More layers than any model has. llama-server accepts `all` only since it has `auto`, its default, which may leave
layers in main memory."""

_DEFAULT = LlamaConfig()
_NOT_FLAGS = ("mtp", "mmap", "mlock", "memory_limit_bytes", "ctx_type", "n_outputs_max")
UNSET = -3
"""No number of layers that anyone asks for."""


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
    return words + changed_flags(setup, setup.undrafted())


def load_flags(setup: LlamaConfig, *, on_gpu: bool) -> list[str]:
    """Return the flags of a load; with `on_gpu`, they ask for all layers explicitly."""
    if setup.main_gpu is not None:
        setup = replace(setup, split_mode="none")
    setup = replace(setup.undrafted(), n_seq_max=1, kv_unified=False)
    is_stated = on_gpu or setup.n_gpu_layers >= 0
    return changed_flags(setup, replace(_DEFAULT, n_gpu_layers=UNSET) if is_stated else _DEFAULT)


def changed_flags(
    setup: LlamaConfig, base: LlamaConfig = _DEFAULT, fields: Collection[str] = LlamaConfig.__struct_fields__
) -> list[str]:
    """Return the flags of the fields of a setup that differ from `base`; what is merely not set has none."""
    words = list[str]()
    for field in LlamaConfig.__struct_fields__:
        if field in fields and field not in _NOT_FLAGS and getattr(setup, field) != getattr(base, field):
            words += _flag(field, getattr(setup, field))
    if "mmap" in fields and setup.load_mode != base.load_mode:
        words += ["-lm", setup.load_mode]
    return words


def _flag(field: str, value: Any) -> list[str]:  # noqa: ANN401 - the field's own type
    """Return the flag of a field with its value; nothing for what is merely not set."""
    default = defaults_of(LlamaConfig)[field]
    flag = options_of(LlamaConfig)[field].flags_of(field, default)[0]
    if isinstance(value, bool):
        return [] if value == default else [flag]
    if value is None or value == ():
        return []
    if isinstance(value, tuple):
        return [flag, joined(value)]
    return [flag, str(ALL_LAYERS if field == "n_gpu_layers" and value < 0 else value)]
