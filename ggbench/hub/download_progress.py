"""Progress of a download by file and by origin of its bytes, because a rate must count only the network's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ggbench.hub.repo_records import RepoFile

Outcome = Literal["downloaded", "continued", "copied", "already_here"]


@dataclass(frozen=True, slots=True)
class FileProgress:
    """Progress of one file."""

    file: RepoFile
    done_bytes: int
    """Bytes present, from any origin."""
    moved_bytes: int = 0
    """Bytes received over the network in this run; exceeds the file size where damaged content was fetched again."""
    copied_bytes: int = 0
    """Bytes copied in this run from another file on this disk."""
    kept_bytes: int = 0
    """Bytes left by an earlier run."""
    has_copy: bool = False
    """Whether the content is copied from another file on this disk."""

    @property
    def outcome(self) -> Outcome:
        """Where a complete file came from."""
        if self.moved_bytes:
            return "continued" if self.moved_bytes < self.file.n_bytes else "downloaded"
        if self.copied_bytes:
            return "copied"
        return "continued" if self.kept_bytes else "already_here"


def summed(files: Iterable[FileProgress]) -> tuple[int, int, int]:
    """Return the bytes present, in all, and received over the network in this run."""
    done, total, moved = zip(*((each.done_bytes, each.file.n_bytes, each.moved_bytes) for each in files), strict=True)
    return sum(done), sum(total), sum(moved)
