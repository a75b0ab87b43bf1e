"""What screens and widgets use of the app that shows them, and the messages between them; they never import it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from textual.message import Message

if TYPE_CHECKING:
    from textual.dom import DOMNode

    from ggbench.engines.llama.config import LlamaConfig
    from ggbench.models.targets import Target
    from ggbench.runs.experiment import Job
    from ggbench.tui.pull_queue import PullQueue
    from ggbench.tui.run_queue import RunQueue
    from ggbench.tui.services import Services


MIN_WIDTH, MIN_HEIGHT = 60, 16
"""Columns and lines below which a screen shows a notice instead of its content."""


class Host(Protocol):
    """The app, as seen from below."""

    services: Services
    n_gen: int
    """Tokens that a run decodes."""
    setup: LlamaConfig
    """How models are loaded, in plans and in runs."""
    opens: Path | str | None
    """The model to open first: a folder, a file, or MODEL as the commands accept it."""
    opens_quant: str | None
    """The quant or file at which to open it; None once it is open."""
    run_queue: RunQueue
    pull_queue: PullQueue


def host_of(node: DOMNode) -> Host:
    """Return the app that a screen or a widget belongs to."""
    return cast("Host", node.app)


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
