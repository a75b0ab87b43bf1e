"""Options that several commands share, by llama.cpp's names; those of loading are the fields of LlamaSetup."""

from __future__ import annotations

import dataclasses
import functools
import re
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
        raise UsageError(f"{text!r} is not a split", "write a share for each GPU, e.g. 3,1") from None
    if any(not 0 <= share < float("inf") for share in shares) or (shares and sum(shares) == 0):
        raise UsageError(f"{text!r} is not a split", "shares are zero or more, and one has to be above zero")
    return shares


def _parse_overrides(_ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Parse `PATTERN=BUFFER_TYPE` separated by commas, in the order given."""
    overrides = tuple(part.strip() for text in texts for part in text.split(","))
    for override in overrides:
        pattern, _, buffer_type = override.rpartition("=")
        if not pattern or not buffer_type:
            raise UsageError(
                f"{override!r} is not a tensor override", r"write PATTERN=BUFFER_TYPE, e.g. '\.ffn_.*_exps\.=CPU'"
            )
        try:
            re.compile(pattern)
        except re.error as error:
            raise UsageError(
                f"{pattern!r} is not a regular expression: {error}", "escape what is meant literally, e.g. \\."
            ) from None
    return overrides


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
        help="Share of each GPU, e.g. 3,1. Default: llama.cpp's choice.",
    ),
    click.option(
        "-sm",
        "--split-mode",
        type=click.Choice(["none", "layer", "row", "tensor"]),
        default="layer",
        show_default=True,
        help="How several GPUs share the model.",
    ),
    click.option("-cmoe", "--cpu-moe", is_flag=True, help="Keep the expert weights of all layers in main memory."),
    click.option(
        "-ncmoe",
        "--n-cpu-moe",
        type=click.IntRange(0),
        metavar="N",
        default=0,
        help="Keep the expert weights of the first N layers in main memory.",
    ),
    click.option(
        "-ot",
        "--override-tensor",
        multiple=True,
        callback=_parse_overrides,
        metavar="PATTERN=BUFFER_TYPE,...",
        help="Put the tensors whose names match a regular expression into a buffer type, e.g. '\\.ffn_up=CPU'.",
    ),
    click.option("-t", "--threads", type=THREADS, help="CPU threads. Default: one for each physical core."),
    click.option(
        "-tb", "--threads-batch", type=THREADS, help="CPU threads for prompts and batches. Default: as --threads."
    ),
    click.option("--no-mmap", is_flag=True, help="Read the file into memory instead of mapping it."),
    click.option("--mlock", is_flag=True, help="Lock the model in main memory, so that it is never swapped out."),
    click.option("-nkvo", "--no-kv-offload", is_flag=True, help="Keep the KV cache in main memory."),
    click.option("--swa-full", is_flag=True, help="Keep the whole context in the caches of sliding-window layers."),
    click.option(
        "--memory-limit",
        "memory_limit_bytes",
        callback=_parse_size,
        metavar="SIZE",
        help="Emulate a machine with this much memory, e.g. 24GiB.",
    ),
)
_RUN_OPTIONS = (
    click.option(
        "--bandwidth",
        callback=_parse_bandwidth,
        metavar="RATE",
        help="Memory bandwidth for the limit, e.g. 1008GB/s. Default: measured.",
    ),
    click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="Stop the worker after SECONDS without output. Default: 600.",
    ),
)


_SWITCHED_OFF = {"mmap": "no_mmap", "kv_offload": "no_kv_offload"}
"""Fields that are on by default, by the option that switches each off."""


def load_options(function: _Function) -> _Function:
    """Add the options of how llama.cpp loads a model; the command gets them as `setup`, a LlamaSetup."""

    @functools.wraps(function)
    def with_setup(*args: object, **kwargs: Any) -> object:  # noqa: ANN401 - the options' own types
        from ggbench.records.setup import LlamaSetup

        names = {field.name for field in dataclasses.fields(LlamaSetup)}
        given = {name: kwargs.pop(name) for name in names & kwargs.keys()}
        given |= {name: not kwargs.pop(option) for name, option in _SWITCHED_OFF.items()}
        return function(*args, setup=LlamaSetup(**given), **kwargs)

    for option in reversed(_LOAD_OPTIONS):
        with_setup = option(with_setup)
    return with_setup  # type: ignore[return-value]


def run_options(function: _Function) -> _Function:
    """Add the options of a run on this machine."""
    for option in reversed(_RUN_OPTIONS):
        function = option(function)
    return function


def parse_lengths(text: str) -> tuple[int, ...]:
    """Parse whole numbers separated by commas, without duplicates. Raises UsageError."""
    try:
        lengths = tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise UsageError(
            f"{text!r} is not a list of lengths", "write whole numbers separated by commas: 1,25,512"
        ) from None
    if min(lengths) < 1:
        raise UsageError(f"{min(lengths)} is not the length of a prompt", "lengths are 1 or more")
    return lengths


def against_option(function: _Function) -> _Function:
    """Add `--against`, what to compare the runs with; None where nothing was asked for."""
    return click.option(
        "--against", type=click.Choice(["published"]), help="Show the nearest published figures under your own."
    )(function)
