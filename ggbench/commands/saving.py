"""Runs saved to files that the user names: what `compare` and `results show` share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ggbench.commands.options import PATH, as_record, option

if TYPE_CHECKING:
    from ggbench.runs.store.database import Store
    from ggbench.runs.summary import QuantSummary
    from ggbench.show.saving import SavedRun


class SavingOptions(msgspec.Struct, frozen=True):
    """Where to save, and whether over what is there."""

    svg: Path | None = None
    csv: Path | None = None
    force: bool = False

    @property
    def is_asked(self) -> bool:
        """Whether anything is to be saved."""
        return self.svg is not None or self.csv is not None

    def read(self, store: Store, summaries: Sequence[QuantSummary]) -> list[SavedRun]:
        """Read what is to be saved of these runs; nothing where nothing is. Raises StoreError."""
        from ggbench.show.saving import SavedRun

        return [SavedRun.of(store, summary) for summary in summaries] if self.is_asked else []

    def save(self, runs: Sequence[SavedRun]) -> list[str]:
        """Save what was asked for and return a line for each file. Raises GgbenchError."""
        from ggbench.show.saving import save_runs_as

        saved: list[Path] = []
        if self.svg is not None:
            saved += save_runs_as(runs, "svg", self.svg, force=self.force)
        if self.csv is not None:
            saved += save_runs_as(runs, "csv", self.csv, force=self.force)
        return [f"saved {path}" for path in saved]


saving_options = as_record(
    "saving",
    SavingOptions,
    SavingOptions.__struct_fields__,
    option(
        "--svg",
        "Save the plot as a picture, further ones beside it as NAME-kld.svg and the like.",
        PATH,
        metavar="FILE",
    ),
    option("--csv", "Save the figures, and every sample beside it as NAME-samples.csv.", PATH, metavar="FILE"),
    option("--force", "Overwrite files that exist.", is_flag=True),
)
"""Add `--svg`, `--csv` and `--force`; the command gets `saving`, a SavingOptions."""
