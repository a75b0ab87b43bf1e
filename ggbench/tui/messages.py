"""What the screens tell the app: requests for work that outlives a screen, and news that every screen may want."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from textual.message import Message

if TYPE_CHECKING:
    from ggbench.catalog.selector import Target
    from ggbench.records import LoadConfig


@dataclass
class RunRequested(Message):
    """Measure these, or search their largest context, one after another."""

    targets: Sequence[Target]
    kind: Literal["bench", "maxctx"]
    config: LoadConfig


@dataclass
class PullRequested(Message):
    """Download these in the background."""

    targets: Sequence[Target]


@dataclass
class QueueChanged(Message, bubble=False):
    """Something about the runs is different; a newer one of these replaces an older one that nobody has read yet."""

    def can_replace(self, message: Message) -> bool:
        """Whatever changed, one look tells all of it."""
        return isinstance(message, QueueChanged)


@dataclass
class PullsChanged(Message, bubble=False):
    """Something about the downloads is different; replaced as QueueChanged is."""

    def can_replace(self, message: Message) -> bool:
        """Whatever changed, one look tells all of it."""
        return isinstance(message, PullsChanged)


@dataclass
class RunStored(Message, bubble=False):
    """The store holds another run, or one fewer."""

    run_id: int | None = None
    """None where it is not one run."""


@dataclass
class ModelsChanged(Message, bubble=False):
    """What is on this disk is different: a twin was written, or a download has ended."""
