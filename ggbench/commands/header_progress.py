"""What is shown of headers that are read from the Hub: how many so far, and what they cost in the end."""

from __future__ import annotations

import contextlib
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ggbench.text import plain
from ggbench.units import format_bytes

if TYPE_CHECKING:
    from ggbench.commands.output import Output
    from ggbench.hub.repo_records import RepoListing


@contextlib.contextmanager
def reading_headers(output: Output) -> Iterator[Callable[[int, int], None]]:
    """Yield what takes the number of headers read and of all: a status line in a terminal, nothing elsewhere."""
    if output.quiet or not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    with output.console(stderr=True).status("") as status:
        yield lambda done, total: status.update(f"reading headers, {done} of {total}")


def reading_notice(listing: RepoListing, moved_bytes: int) -> str:
    """What the headers of a repo cost, in lines of at most 80 characters where its name allows it."""
    total = format_bytes(listing.total_bytes)
    cost = f"{format_bytes(moved_bytes)} read of {total}"
    if not moved_bytes:
        cost = f"from this disk, nothing read of the {total}"
    listed = f" (listed {listing.listed_at[:10]})" if listing.listed_at else ""
    notice = plain(f"headers: {cost} in {listing.repo} at commit {listing.commit[:12]}{listed}")
    return textwrap.fill(notice, 80, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
