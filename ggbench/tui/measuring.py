"""A measurement as chosen in its dialog, and its jobs."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from ggbench import paths
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import UsageError
from ggbench.files import replace_file
from ggbench.models.reference import parse_model
from ggbench.tui.library import Selection
from ggbench.tui.quant_rows import QuantRow

if TYPE_CHECKING:
    from ggbench.hub.access import HubAccess
    from ggbench.models.catalog import Catalog
    from ggbench.models.targets import Target
    from ggbench.runs.experiment import Experiment, Job
    from ggbench.runs.run import Settings
    from ggbench.tui.host import Services


EXPERIMENTS = "ggbench.experiments"


class Choices(msgspec.Struct, frozen=True):
    """The last choices of the dialog, kept in the config folder."""

    kind: str = ""
    """The experiment; empty before the first."""
    texts: dict[str, dict[str, str]] = {}
    """The texts of the fields of each experiment."""

    @classmethod
    def load(cls) -> Choices:
        """Return the stored choices; the defaults if there are none, or they cannot be read."""
        with contextlib.suppress(OSError, UsageError, ValueError, RecursionError):
            return msgspec.json.decode(paths.measure_choices_file().read_bytes(), type=cls)
        return cls()

    def save(self) -> None:
        """Store them, unless the config folder cannot be written."""
        with contextlib.suppress(OSError, UsageError):
            replace_file(paths.measure_choices_file(), msgspec.json.encode(self))


class Chosen(msgspec.Struct, frozen=True):
    """The quants to measure."""

    title: str
    """Untrusted text."""
    selection: Selection
    rows: Sequence[QuantRow]
    """Those that have a plan."""
    setup: LlamaConfig

    @property
    def download_bytes(self) -> int:
        """Bytes of the planned quants that are not on this disk."""
        return sum(row.plan.file_bytes or 0 for row in self.rows if not (row.is_here or row.is_twin))

    @property
    def has_twins(self) -> bool:
        """Whether twins can be measured in place of files that are not on this disk."""
        return any(parse_model(model).kind in ("catalog", "hub") for model, _ in self.selection)


class RunRequest(msgspec.Struct, frozen=True):
    """An experiment with its options, for all chosen quants."""

    experiment: Experiment
    options: Settings
    """A record of the experiment's `request_type`."""
    setup: LlamaConfig
    is_twin: bool = False
    """Whether to measure twins in place of files that are not on this disk."""

    def targets(
        self, services: Services, model: str, names: Sequence[str], catalog: Catalog | None
    ) -> Sequence[Target]:
        """Return the targets of these quants. Raises like `resolve`."""
        if self.is_twin:
            return [services.find_file_or_twin(model, name, catalog) for name in names]
        return services.resolve(model, names, catalog)

    def jobs(self, found: Sequence[tuple[str, Sequence[str], Sequence[Target]]], hub: HubAccess) -> list[Job]:
        """Return the jobs for the targets found for each model and its quants. Raises GgbenchError."""
        return [
            job
            for model, names, targets in found
            for job in self.experiment.jobs(self.options, parse_model(model, *names), targets, self.setup, hub)
        ]
