"""Ask before a large download: up to 1 GB proceeds with a notice, more asks."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

import click

from ggbench.catalog.file_sources import CONFIRM_ABOVE_BYTES
from ggbench.catalog.selector import Target
from ggbench.cli.options import Asked, HubOptions
from ggbench.cli.output import Output
from ggbench.errors import ExitCode, NetworkError, UsageError
from ggbench.plain import plain
from ggbench.units import format_bytes


def allow_downloads(targets: Sequence[Target], hub: HubOptions, output: Output) -> None:
    """Return where every target may be downloaded; a notice or a question says how much that is.

    Raises UsageError where an option forbids it or nobody can be asked, and NetworkError where there is no network. A
    person's no ends the command with 130: nothing was wrong with what they asked for. A target that cannot be obtained
    for another reason is not asked about: its own run says why.
    """
    sizes = [target.download_bytes for target in targets]
    wanted = [target for target, n_bytes in zip(targets, sizes, strict=True) if n_bytes]
    if not wanted:
        return
    total_bytes = sum(sizes)
    what = f"{_names(wanted)} ({format_bytes(total_bytes)})"
    if hub.no_download:
        raise UsageError(f"{what} is not on this disk", f"omit --no-download, or download it: {_pull(wanted)}")
    if hub.access().offline:
        raise NetworkError(
            f"{what} is not on this disk, and there is no network by --offline or HF_HUB_OFFLINE",
            f"with a network, download it: {_pull(wanted)}; ggbench models lists what is on this disk",
        )
    if total_bytes <= CONFIRM_ABOVE_BYTES or hub.yes:
        output.notice(f"{what} will be downloaded into Hugging Face's cache.")
    elif not can_ask():
        raise UsageError(
            f"{what} would be downloaded, which is more than 1 GB", f"give --yes, or download it: {_pull(wanted)}"
        )
    elif not click.confirm(f"Download {what} into Hugging Face's cache?", err=True):
        output.notice(plain(f"nothing was downloaded; ggbench plan {wanted[0].model} shows what each quant needs"))
        raise click.exceptions.Exit(ExitCode.INTERRUPTED)


def show_left_out(asked: Asked, targets: Sequence[Target]) -> None:
    """Without a network, name the quants of a repo that a request for all of them leaves out, as its listing has them.

    `targets` are what MODEL and QUANTs mean.
    """
    from ggbench.catalog.models import load_catalog
    from ggbench.catalog.reference import CatalogRef, HubRef, parse_model, wanted_quants
    from ggbench.catalog.selector import find_published

    access, ref = asked.hub.access(), parse_model(asked.model)
    if not access.offline or not isinstance(ref, CatalogRef | HubRef) or wanted_quants(ref, asked.quants):
        return
    meant = {target.selector for target in targets}
    found = [each for each in find_published(ref, (), access, load_catalog()) if not each.variant.missing]
    left_out = [each.selector for each in found if each.paths is None and each.selector not in meant]
    if left_out:
        names = plain(", ".join(left_out))
        asked.output.notice(f"{len(left_out)} of {len(found)} quants are not on this disk: {names}")


def can_ask() -> bool:
    """Whether a person is at a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _names(targets: Sequence[Target]) -> str:
    named = [f"{targets[0].model} {targets[0].quant}", *(target.quant for target in targets[1:4])]
    return ", ".join(named) + (f" and {len(targets) - 4} more" if len(targets) > 4 else "")


def _pull(targets: Sequence[Target]) -> str:
    quants = [target.selector or target.quant for target in targets]
    return plain(shlex.join(("ggbench", "pull", targets[0].model, *quants)))
