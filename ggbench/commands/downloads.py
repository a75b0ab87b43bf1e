"""A command's downloads: the question before a large one, and the progress on stderr."""

from __future__ import annotations

import contextlib
import shlex
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING

import click

from ggbench.commands.options import HubOptions
from ggbench.commands.output import DOWNLOAD_INTERRUPTED, Output, status_line
from ggbench.commands.process import interrupt_sets
from ggbench.errors import ExitCode, NetworkError, UsageError
from ggbench.runs.progress import Pace
from ggbench.text import in_words, sanitize
from ggbench.units import format_bytes, format_duration

if TYPE_CHECKING:
    from ggbench.hub.download import FileProgress
    from ggbench.hub.repo_records import RepoListing
    from ggbench.models.targets import Target

CONFIRM_ABOVE_BYTES = 10**9
"""Ask before a larger download; a smaller one proceeds with a notice."""


def transfer_text(pace: Pace) -> str:
    """Return `1.20 GiB of 4.43 GiB, 23.5 MiB/s, 2:21 left`."""
    text = f"{format_bytes(round(pace.done))} of {format_bytes(round(pace.total))}"
    if pace.per_s is None:
        return text
    text += f", {format_bytes(pace.per_s)}/s"
    return text if pace.done >= pace.total else f"{text}, {format_duration(pace.left_s)} left"


_STEPS = 4
"""Lines for a whole download, without a terminal."""


def allow_downloads(targets: Sequence[Target], hub: HubOptions, output: Output) -> None:
    """Announce the targets' downloads, or ask the user if they are large.

    Raises UsageError if nobody can be asked, and NetworkError when offline. If the user
    says no, the command ends with exit code 130.
    """
    sizes = [target.download_bytes for target in targets]
    wanted = [target for target, n_bytes in zip(targets, sizes, strict=True) if n_bytes]
    if not wanted:
        return
    total_bytes = sum(sizes)
    what = f"{wanted[0].model} {in_words([target.quant for target in wanted])} ({format_bytes(total_bytes)})"
    if hub.access().offline:
        raise NetworkError(
            f"{what} is not on this disk, and --offline or HF_HUB_OFFLINE forbids the network",
            f"try again online{_pull(wanted)}; ggbench models lists what is on this disk",
        )
    if total_bytes <= CONFIRM_ABOVE_BYTES or hub.yes:
        output.notice(f"{what} will be downloaded into Hugging Face's cache.")
    elif not can_ask():
        raise UsageError(f"{what} needs confirmation: the download exceeds 1 GB", f"add --yes{_pull(wanted)}")
    elif not click.confirm(f"Download {what} into Hugging Face's cache?", err=True):
        output.notice(
            sanitize(f"nothing was downloaded; ggbench plan {wanted[0].model} shows what each quant needs")
        )
        raise click.exceptions.Exit(ExitCode.INTERRUPTED)


def can_ask() -> bool:
    """Return whether a user is at a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _pull(targets: Sequence[Target]) -> str:
    """Return the second half of a hint; empty for checkpoints, which pull does not download."""
    if targets[0].published is None:
        return ""
    quants = [target.selector or target.quant for target in targets]
    return ", or download it: " + sanitize(shlex.join(("ggbench", "pull", targets[0].model, *quants)))


class DownloadLines:
    """Write a line at each quarter of a download."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write, self._pace = write, Pace()
        self._step = 0

    def update(self, done_bytes: int, total_bytes: int, moved_bytes: int | None = None) -> None:
        self._pace.update(done_bytes, total_bytes, moved_bytes)
        step = _STEPS * done_bytes // max(1, total_bytes)
        if step > self._step:
            self._step = step
            self._write(transfer_text(self._pace))


@contextlib.contextmanager
def byte_progress(output: Output, title: str) -> Iterator[Callable[..., None]]:
    """Yield a callback, given the bytes done and in all and those that moved, that shows a bar on stderr in a terminal,
    otherwise lines; nothing if quiet.
    """
    if output.quiet or not sys.stderr.isatty():
        yield DownloadLines(lambda text: output.notice(f"{title}: {text}")).update
        return
    from rich.progress import BarColumn, Progress, TextColumn

    pace, status = Pace(), TextColumn("{task.fields[status]}", markup=False)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), status)
    with Progress(*columns, console=output.console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None, status="")

        def update_bar(done_bytes: int, total_bytes: int, moved_bytes: int | None = None) -> None:
            pace.update(done_bytes, total_bytes, moved_bytes)
            bar.update(task, completed=done_bytes, total=total_bytes, status=transfer_text(pace))

        yield update_bar


@contextlib.contextmanager
def downloading(
    output: Output, title: str
) -> Iterator[tuple[Callable[[Sequence[FileProgress]], None], Callable[[], bool]]]:
    """Yield a callback that shows the progress of files, like `byte_progress`, and what says whether Ctrl-C was
    pressed; the download then raises CancelledError, which ends the command.
    """
    from ggbench.hub.download import summed

    cancel = threading.Event()
    try:
        with interrupt_sets(cancel), byte_progress(output, title) as update:
            yield lambda files: update(*summed(files)), cancel.is_set
    except CancelledError:
        output.notice(DOWNLOAD_INTERRUPTED)
        raise click.exceptions.Exit(ExitCode.INTERRUPTED) from None


@contextlib.contextmanager
def reading_headers(output: Output) -> Iterator[Callable[[int, int], None]]:
    """Yield a callback, given the number of headers read and the total, that shows a status line in a terminal."""
    with status_line(output) as show:
        yield lambda done, total: show(f"reading headers, {done} of {total}")


def reading_notice(listing: RepoListing) -> str:
    """Return of which commit of a repo the headers were read."""
    return sanitize(
        f"headers of {listing.repo} at commit {listing.commit[:12]}, listed {listing.listed_at[:10]}"
    )
