"""What screens and widgets use of the app that shows them, so that they never import it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from textual.dom import DOMNode

    from ggbench.engines.llama.config import LlamaConfig
    from ggbench.tui.pull_queue import PullQueue
    from ggbench.tui.run_queue import RunQueue
    from ggbench.tui.services import Services

MIN_WIDTH, MIN_HEIGHT = 60, 16
"""Columns and lines below which a screen shows a notice instead of its content."""
DEFAULT_N_GEN = 10_000
"""Tokens that a run decodes by default."""


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
