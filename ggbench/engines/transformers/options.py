"""Options of how Transformers loads a checkpoint: fields of TransformersConfig that llama.cpp has no name for."""

from __future__ import annotations

import functools

import click

from ggbench.commands.documented import GroupedOption, OptionGroup
from ggbench.engines.transformers.config import TransformersConfig

CONFIG = TransformersConfig
TAKES = "a checkpoint takes --cache, --attention, --device, --torch-compile, -c, -t and --memory-limit"
SHARED = ("n_ctx", "threads", "memory_limit_bytes")
"""Fields whose options are llama.cpp's too."""
NAMES = ("cache", "attention", "torch_compile", "device", "trust_remote_code")
"""The fields, in the order of the options."""

_option = functools.partial(click.option, cls=GroupedOption, group=OptionGroup.CHECKPOINT)

OPTIONS = (
    _option(
        "--cache",
        type=click.Choice(["dynamic", "static"]),
        default="dynamic",
        metavar="dynamic|static",
        help="KV cache: grows with each token, or holds the whole context from the start.",
    ),
    _option(
        "--attention",
        type=click.Choice(["sdpa", "eager", "flash_attention_2"]),
        default="sdpa",
        metavar="NAME",
        help="Attention implementation: sdpa, eager or flash_attention_2.",
    ),
    _option("--torch-compile", is_flag=True, help="Compile the decode steps; needs --cache static."),
    _option(
        "--device",
        type=click.Choice(["auto", "cpu", "cuda"]),
        default="auto",
        show_default=False,
        metavar="cpu|cuda",
        help="Where to compute. Default: the first CUDA GPU that torch sees, else the CPU.",
    ),
    _option("--trust-remote-code", is_flag=True, help="Run the Python code of the checkpoint's own. Read it first."),
)
