"""Whether what a command is about to download may be: a little goes ahead, more than 1 GB is asked for."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

import click

from ggbench.catalog.selector import Target
from ggbench.cli.hub_options import HubOptions
from ggbench.cli.output import Output
from ggbench.errors import NetworkError, UsageError
from ggbench.plain import plain
from ggbench.units import format_bytes

FREE_BYTES = 10**9
"""Up to this a download goes ahead with a notice."""


def allow_downloads(targets: Sequence[Target], hub: HubOptions, output: Output) -> None:
    """Return where every target may be had; tells or asks how much would be downloaded.

    Raises UsageError where the person or an option says no, or nobody can be asked, and NetworkError where there is no
    network. A target that cannot be had for another reason is not asked for: its turn tells why.
    """
    sizes = [target.download_bytes for target in targets]
    wanted = [target for target, n_bytes in zip(targets, sizes, strict=True) if n_bytes]
    if not wanted:
        return
    total_bytes = sum(sizes)
    what = f"{_names(wanted)} ({format_bytes(total_bytes)})"
    if hub.no_download:
        raise UsageError(f"{what} is not on this disk", f"leave --no-download out, or fetch it: {_pull(wanted)}")
    if hub.access().offline:
        raise NetworkError(
            f"{what} is not on this disk, and there is no network by --offline or HF_HUB_OFFLINE",
            f"with a network, fetch it: {_pull(wanted)}; ggbench models lists what is here",
        )
    if total_bytes <= FREE_BYTES or hub.yes:
        output.notice(f"{what} will be downloaded into Hugging Face's cache.")
    elif not can_ask():
        raise UsageError(
            f"{what} would be downloaded, which is more than 1 GB", f"say --yes, or fetch it: {_pull(wanted)}"
        )
    elif not click.confirm(f"Download {what} into Hugging Face's cache?", err=True):
        raise UsageError("nothing was downloaded", f"ggbench plan {wanted[0].model} tells what each quant would need")


def can_ask() -> bool:
    """Whether somebody sits at a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _names(targets: Sequence[Target]) -> str:
    named = [f"{targets[0].model} {targets[0].quant}", *(target.quant for target in targets[1:4])]
    return ", ".join(named) + (f" and {len(targets) - 4} more" if len(targets) > 4 else "")


def _pull(targets: Sequence[Target]) -> str:
    quants = [target.selector or target.quant for target in targets]
    return plain(shlex.join(("ggbench", "pull", targets[0].model, *quants)))
