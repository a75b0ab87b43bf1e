"""Messages from the Library's worker threads; a message may arrive when its answer is no longer needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from textual.message import Message

from ggbench.errors import GgbenchError

if TYPE_CHECKING:
    from ggbench.catalog.disk import LocalModel
    from ggbench.catalog.models import Catalog
    from ggbench.catalog.selector import Target
    from ggbench.hub.repo_records import RepoSummary
    from ggbench.records.machine import MachineReading
    from ggbench.records.plan import Budget
    from ggbench.tui.library_quants import LatestDecodes
    from ggbench.tui.planner import PlannedQuant, Planner
    from ggbench.tui.run_requests import RunRequest

Task = Literal["plan", "start", "search", "machine", "models", "results"]
"""What a thread was started for."""
TASKS: tuple[Task, ...] = ("plan", "start", "search", "machine", "models", "results")
"""By priority: if several have failed, the screen shows the error of the first."""


@dataclass
class ModelsRead(Message):
    """The models of the catalog and of this disk."""

    catalog: Catalog
    local: Sequence[LocalModel]
    is_complete: bool
    """False before this disk was scanned."""


@dataclass
class MachineRead(Message):
    """Memory budget and current state of this machine."""

    planner: Planner
    budget: Budget
    reading: MachineReading


@dataclass
class ResultsRead(Message):
    """The stored decodes that the table shows."""

    decodes: LatestDecodes


@dataclass
class SearchFinished(Message):
    """The repos that the Hub found for a text."""

    text: str
    found: Sequence[RepoSummary]


@dataclass
class QuantPlanned(Message):
    """One row of the plan numbered `request`; None marks its end."""

    request: int
    quant: PlannedQuant | None


@dataclass
class TargetsFound(Message):
    """The targets to run or download."""

    request: RunRequest | None
    """What to do with them; None downloads them."""
    targets: Sequence[Target]
    download_bytes: int


@dataclass
class TaskFailed(Message):
    """A thread ended with an error."""

    task: Task
    error: GgbenchError
    request: int = 0
    """The number of the plan; 0 for any other task."""
