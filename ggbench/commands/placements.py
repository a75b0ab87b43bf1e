"""Values of options that say what of a model goes where: shares of GPUs, RPC servers, overrides of tensors."""

from __future__ import annotations

import re

import click

from ggbench.errors import UsageError


def parse_shares(_ctx: click.Context, _param: click.Parameter, text: str | None) -> tuple[float, ...]:
    """Parse a share for each GPU, separated by commas. Raises UsageError."""
    try:
        shares = tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise UsageError(f"{text!r} is not a split", "write a share for each GPU, e.g. 3,1") from None
    if any(not 0 <= share < float("inf") for share in shares) or (shares and sum(shares) == 0):
        raise UsageError(f"{text!r} is not a split", "shares are zero or more, and one has to be above zero")
    return shares


def parse_servers(_ctx: click.Context, _param: click.Parameter, text: str | None) -> tuple[str, ...]:
    """Parse addresses of RPC servers, separated by commas. Raises UsageError."""
    from ggbench.sizing import cluster

    return cluster.parse_servers(text) if text is not None else ()


def parse_overrides(_ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Parse `PATTERN=BUFFER_TYPE` separated by commas, in the order given. Raises UsageError."""
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
