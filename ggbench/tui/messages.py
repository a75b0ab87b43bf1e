"""Messages between the screens and the app: requests for work that outlives a screen, and changes that concern all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:
    from ggbench.models.selector import Target
    from ggbench.runs.experiment import Job


@dataclass
class RunRequested(Message):
    """Do these jobs one after another."""

    jobs: Sequence[Job]


@dataclass
class PullRequested(Message):
    """Download these targets in the background."""

    targets: Sequence[Target]


class _Coalesced(Message, bubble=False):
    """A newer one replaces an older one that is still unread: the reader looks at the whole queue."""

    def can_replace(self, message: Message) -> bool:
        """Replace any older one of the same queue."""
        return type(message) is type(self)


class QueueChanged(_Coalesced, bubble=False):
    """The run queue changed."""


class PullsChanged(_Coalesced, bubble=False):
    """The download queue changed."""


class RunStored(Message, bubble=False):
    """A run was added to the store."""


class ModelsChanged(Message, bubble=False):
    """The models on this disk changed: a twin was written, or a download ended."""
