"""Messages between the screens and the app: requests for work that outlives a screen, and changes that concern all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:
    from ggbench.catalog.selector import Target
    from ggbench.recording.experiment import Job


@dataclass
class RunRequested(Message):
    """Do these jobs one after another."""

    jobs: Sequence[Job]


@dataclass
class PullRequested(Message):
    """Download these targets in the background."""

    targets: Sequence[Target]


@dataclass
class QueueChanged(Message, bubble=False):
    """The run queue changed; a newer message replaces an older one that is still unread."""

    def can_replace(self, message: Message) -> bool:
        """Replace any older one: the reader looks at the whole queue."""
        return isinstance(message, QueueChanged)


@dataclass
class PullsChanged(Message, bubble=False):
    """The download queue changed; replaced like QueueChanged."""

    def can_replace(self, message: Message) -> bool:
        """Replace any older one: the reader looks at the whole queue."""
        return isinstance(message, PullsChanged)


@dataclass
class RunStored(Message, bubble=False):
    """A run was added to the store or removed from it."""

    run_id: int | None = None
    """None if more than one run changed, or the run was not stored."""


@dataclass
class ModelsChanged(Message, bubble=False):
    """The models on this disk changed: a twin was written, or a download ended."""
