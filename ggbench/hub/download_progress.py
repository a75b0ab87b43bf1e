"""How the files of a download come to be where they are: there before, continued, copied from this disk, or moved.

Told while it goes on, because a speed is of what the network brings, and of nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ggbench.hub.repo_records import RepoFile

Outcome = Literal["downloaded", "continued", "copied", "already_here"]


@dataclass(frozen=True, slots=True)
class FileProgress:
    """One file, so far."""

    file: RepoFile
    done_bytes: int
    """What of it is there."""
    moved_bytes: int = 0
    """What the network brought in this run, more than the file has where it arrived damaged."""
    copied_bytes: int = 0
    """What this run copied from elsewhere on this disk."""
    kept_bytes: int = 0
    """The part that an earlier run had left."""
    has_copy: bool = False
    """Whether it is taken from elsewhere on this disk."""

    @property
    def outcome(self) -> Outcome:
        """Where it comes from, once it is whole."""
        if self.moved_bytes:
            return "continued" if self.moved_bytes < self.file.n_bytes else "downloaded"
        if self.copied_bytes:
            return "copied"
        return "continued" if self.kept_bytes else "already_here"
