"""Options that several commands share, named as llama.cpp names them; those of loading are the fields of LlamaSetup."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ggbench.errors import UsageError

if TYPE_CHECKING:
    from ggbench.records.speed import Bandwidth

_Function = TypeVar("_Function", bound=Callable[..., Any])

TOKENS = click.IntRange(1, (1 << 31) - 1)
"""What llama.cpp's 32-bit counts hold."""

THREADS = click.IntRange(1, 512)
"""GGML_MAX_N_THREADS of ggml.h."""

_KV_TYPES = click.Choice(["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"], case_sensitive=False)
"""Those that llama.cpp's own tools take for a cache."""


def _parse_size(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    from ggbench.units import parse_size

    return None if text is None else parse_size(text)


def _parse_bandwidth(_ctx: click.Context, _param: click.Parameter, text: str | None) -> Bandwidth | None:
    from ggbench.records.speed import Bandwidth
    from ggbench.units import parse_bandwidth

    return None if text is None else Bandwidth(parse_bandwidth(text), "given")


def _parse_shares(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[float, ...]:
    try:
        shares = tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise UsageError(f"{text!r} is not a split", "write a share for each GPU: 3,1") from None
    if any(not 0 <= share < float("inf") for share in shares) or (shares and sum(shares) == 0):
        raise UsageError(f"{text!r} is not a split", "shares are zero or more, and one has to be above zero")
    return shares


_LOAD_OPTIONS = (
    click.option("-c", "--n-ctx", type=TOKENS, help="Context in tokens. Default: what the command needs."),
    click.option("-b", "--n-batch", type=TOKENS, default=2048, show_default=True, help="Logical batch."),
    click.option("-ub", "--n-ubatch", type=TOKENS, default=512, show_default=True, help="Physical batch."),
    click.option(
        "-ctk",
        "--type-k",
        type=_KV_TYPES,
        metavar="TYPE",
        default="f16",
        show_default=True,
        help="Type of the K cache.",
    ),
    click.option(
        "-ctv",
        "--type-v",
        type=_KV_TYPES,
        metavar="TYPE",
        default="f16",
        show_default=True,
        help="Type of the V cache.",
    ),
    click.option(
        "-fa",
        "--flash-attn",
        type=click.Choice(["auto", "on", "off"]),
        default="auto",
        show_default=True,
        help="Flash attention; it decides the size of the compute buffer.",
    ),
    click.option("-ngl", "--n-gpu-layers", type=int, default=-1, help="Layers on the GPU. Default: all."),
    click.option("-mg", "--main-gpu", type=click.IntRange(0), help="The one GPU to use. Default: all of them."),
    click.option(
        "-ts",
        "--tensor-split",
        callback=_parse_shares,
        default="",
        help="Share of each GPU, as 3,1. Default: llama.cpp's choice.",
    ),
    click.option("-t", "--threads", type=THREADS, help="CPU threads. Default: one for each physical core."),
    click.option(
        "--memory-limit",
        "memory_limit_bytes",
        callback=_parse_size,
        metavar="SIZE",
        help="Behave like a machine with this much, as 24GiB.",
    ),
)
_TRIAL_OPTIONS = (
    click.option(
        "--bandwidth",
        callback=_parse_bandwidth,
        metavar="RATE",
        help="Memory bandwidth for the limit, as 1008GB/s. Default: measured.",
    ),
    click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="Longest silence of the worker. Default: 600.",
    ),
)


def load_options(function: _Function) -> _Function:
    """Adds how llama.cpp loads a model; the command gets it as `config`, a LlamaSetup."""

    @functools.wraps(function)
    def with_config(*args: object, **kwargs: Any) -> object:  # noqa: ANN401 - the options' own types
        from ggbench.records.setup import LlamaSetup

        load = {field.name: kwargs.pop(field.name) for field in dataclasses.fields(LlamaSetup)}
        return function(*args, config=LlamaSetup(**load), **kwargs)

    for option in reversed(_LOAD_OPTIONS):
        with_config = option(with_config)
    return with_config  # type: ignore[return-value]


def trial_options(function: _Function) -> _Function:
    """Adds what concerns a trial on this machine."""
    for option in reversed(_TRIAL_OPTIONS):
        function = option(function)
    return function


def parse_lengths(text: str) -> tuple[int, ...]:
    """Whole numbers between commas, each once, in the order given. Raises UsageError."""
    try:
        lengths = tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise UsageError(f"{text!r} is not a list of lengths", "write whole numbers between commas: 1,25,512") from None
    if min(lengths) < 1:
        raise UsageError(f"{min(lengths)} is not the length of a prompt", "lengths are 1 or more")
    return lengths


def against_option(function: _Function) -> _Function:
    """Adds `--against`, what to hold the rows against; None where nothing was asked for."""
    return click.option(
        "--against", type=click.Choice(["published"]), help="Put the nearest published rows under your own."
    )(function)
