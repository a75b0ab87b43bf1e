"""Whether what a command is about to download may be: a little goes ahead, more than 1 GB is asked for."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Iterator, Sequence

import click

from ggbench.catalog.file_sources import CONFIRM_ABOVE_BYTES
from ggbench.catalog.selector import Target
from ggbench.cli.hub_options import HubOptions
from ggbench.cli.output import Output
from ggbench.errors import ExitCode, NetworkError, UsageError
from ggbench.plain import plain
from ggbench.units import format_bytes

INTERRUPTED = "interrupted; what was moved is kept, and the same command goes on from there"


def allow_downloads(targets: Sequence[Target], hub: HubOptions, output: Output) -> None:
    """Return where every target may be had; tells or asks how much would be downloaded.

    Raises UsageError where an option says no or nobody can be asked, and NetworkError where there is no network. Where
    the person says no it ends the command with 130: nothing was wrong with what they asked for. A target that cannot be
    had for another reason is not asked for: its turn tells why.
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
    if total_bytes <= CONFIRM_ABOVE_BYTES or hub.yes:
        output.notice(f"{what} will be downloaded into Hugging Face's cache.")
    elif not can_ask():
        raise UsageError(
            f"{what} would be downloaded, which is more than 1 GB", f"say --yes, or fetch it: {_pull(wanted)}"
        )
    elif not click.confirm(f"Download {what} into Hugging Face's cache?", err=True):
        output.notice(plain(f"nothing was downloaded; ggbench plan {wanted[0].model} tells what each quant needs"))
        raise click.exceptions.Exit(ExitCode.INTERRUPTED)


def tell_left_out(
    model: str, quants: Sequence[str], targets: Sequence[Target], hub: HubOptions, output: Output
) -> None:
    """Name the quants of a repo that a request for all of them lacks, as there is no network; where a listing tells.

    `targets` are what MODEL and QUANTs mean.
    """
    from ggbench.catalog.models import load_catalog
    from ggbench.catalog.reference import CatalogRef, HubRef, parse_model, wanted_quants
    from ggbench.catalog.selector import find_published

    access, ref = hub.access(), parse_model(model)
    if not access.offline or not isinstance(ref, CatalogRef | HubRef) or wanted_quants(ref, quants):
        return
    meant = {target.selector for target in targets}
    found = [each for each in find_published(ref, (), access, load_catalog()) if not each.variant.missing]
    left_out = [each.selector for each in found if each.paths is None and each.selector not in meant]
    if left_out:
        names = plain(", ".join(left_out))
        output.notice(f"{len(left_out)} of {len(found)} quants are not on this disk: {names}")


@contextlib.contextmanager
def interruptible(output: Output) -> Iterator[None]:
    """Where a Ctrl-C loses nothing, while the Hub is asked what it has: it says so and ends the command with 130."""
    try:
        yield
    except KeyboardInterrupt:
        output.notice(INTERRUPTED)
        raise click.exceptions.Exit(ExitCode.INTERRUPTED) from None


def can_ask() -> bool:
    """Whether somebody sits at a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _names(targets: Sequence[Target]) -> str:
    named = [f"{targets[0].model} {targets[0].quant}", *(target.quant for target in targets[1:4])]
    return ", ".join(named) + (f" and {len(targets) - 4} more" if len(targets) > 4 else "")


def _pull(targets: Sequence[Target]) -> str:
    quants = [target.selector or target.quant for target in targets]
    return plain(shlex.join(("ggbench", "pull", targets[0].model, *quants)))
