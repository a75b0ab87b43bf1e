"""JSON of measured runs: what all kinds have in common, and measured quants."""

from __future__ import annotations

from functools import cached_property

from msgspec.structs import replace

from ggbench.machine.records import MachineReading
from ggbench.models.published.selection import NearRow
from ggbench.record import Record
from ggbench.runs.run import Run
from ggbench.show.document import Document, rows_document
from ggbench.show.figure import Figure, figure_values, figures_type
from ggbench.show.run_figures import FIGURES, figures


class RunDocuments(Record, dict=True):
    """The documents of a kind of runs: their figures by key, and under `run` the whole record."""

    kind: str
    own: tuple[Figure[Run], ...]
    """Figures besides those of the file and of every run."""
    about: str
    several_as: str = ""
    """Schema of the document of several quants, `bench` or `quality.all`; empty without one."""

    @property
    def figures(self) -> tuple[Figure[Run], ...]:
        return tuple({each.key: each for each in (*_FILE, *self.own, *_ENDING)}.values())

    @cached_property
    def one(self) -> Document:
        members = {"run": Run, "against": list[NearRow] | None, "readings": list[MachineReading] | None}
        kind = figures_type(self.kind.title(), self.figures, self.about, members)
        return Document(self.kind, f"{self.kind} MODEL QUANT, results show ID", self.about, kind)

    @cached_property
    def several(self) -> Document | None:
        if not self.several_as:
            return None
        printed_by = f"{self.several_as.partition('.')[0]} MODEL QUANT..."
        return rows_document(
            self.several_as, printed_by, f"{self.about} One for each quant.", self.one.kind, model=str
        )

    @property
    def all(self) -> tuple[Document, ...]:
        return (self.one, *([self.several] if self.several else []))

    def value(self, run: Run, **more: object) -> dict[str, object]:
        """Return the members of a run's document."""
        return figure_values(self.figures, run) | {"run": run} | more


_PROVENANCE = replace(FIGURES["source"], key="provenance")
_REASON = Figure[Run](
    "reason", "reason", lambda run: run.reason or None, meaning="Why the run did not complete."
)
_FILE = (
    *figures("model quant file"),
    _PROVENANCE,
    *figures("file_bytes n_params bpw weight_bytes kv_bytes_per_token"),
)
_ENDING = (*figures("outcome note"), _REASON, *figures("run_id command"))
MEASURED = (*_FILE, *(each for key, each in FIGURES.items() if key != "source"), _REASON)
"""All figures that a quant may have; speeds at depths are in the record of its run."""
