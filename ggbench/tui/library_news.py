"""What the Library's threads tell it; each may come after it is wanted no more."""

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
    from ggbench.machine_records import MachineReading
    from ggbench.plan_records import Budget
    from ggbench.tui.planner import PlannedQuant, Planner
    from ggbench.tui.variants import Measured

Job = Literal["bench", "maxctx", "pull"]
Errand = Literal["plan", "start", "search", "machine", "models", "results"]
"""What a thread was sent for; where several failed, the first of these is told."""
ERRANDS: tuple[Errand, ...] = ("plan", "start", "search", "machine", "models", "results")


@dataclass
class ModelsRead(Message):
    """The models of the catalog and of this disk."""

    catalog: Catalog
    local: Sequence[LocalModel]
    is_whole: bool
    """False before this disk was looked at."""


@dataclass
class MachineRead(Message):
    """What this machine has."""

    planner: Planner
    budget: Budget
    reading: MachineReading


@dataclass
class ResultsRead(Message):
    """What was measured so far."""

    measured: Measured


@dataclass
class Searched(Message):
    """What the Hub found."""

    text: str
    found: Sequence[RepoSummary]


@dataclass
class QuantPlanned(Message):
    """One row of the plan that was asked for as number `request`; None is its end."""

    request: int
    quant: PlannedQuant | None


@dataclass
class TargetsFound(Message):
    """What to measure or to download."""

    job: Job
    targets: Sequence[Target]
    download_bytes: int


@dataclass
class ErrandFailed(Message):
    """Something was not to be had."""

    errand: Errand
    error: GgbenchError
    request: int = 0
    """Of a plan."""
