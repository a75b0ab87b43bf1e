"""Folders as they may be shown to others: below the home folder as `~`, elsewhere left out."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path, PurePath

import msgspec

_PATH = re.compile(r"(?<![\w.:/~\\-])(?:/|[A-Za-z]:\\)[^\s'\"(),;:]+")


def home_folder() -> Path:
    """Return the home folder; `~` itself where there is none, which no path is below."""
    return Path(os.path.expanduser("~"))  # noqa: PTH111 - pathlib's raises where there is none


class Paths(msgspec.Struct, frozen=True):
    """How folders are named."""

    home: Path
    whole: bool = False
    """Whether paths are shown as they are."""

    def shown(self, path: str) -> str:
        """Return a path for others: from the home folder on, else its last part alone."""
        if self.whole:
            return path
        pure = PurePath(path)
        if pure.is_relative_to(self.home) and self.home != self.home.parent:  # all is below `/`, a container's home
            return str(PurePath("~") / pure.relative_to(self.home))
        return f"…/{pure.name}"

    def without(self, text: str) -> str:
        """Return a message of another program with its paths named so."""
        return _PATH.sub(lambda match: self.shown(match[0]), text)

    def shell_word(self, path: str) -> str:
        """Return a path for a command line: one that a shell reads, else `FILE`."""
        shown = self.shown(path)
        if shown.startswith("~/"):
            return f"~/{shlex.quote(shown[2:])}"
        return shlex.quote(path) if shown == path else "FILE"
