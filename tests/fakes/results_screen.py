"""What the Results screen shows."""

from __future__ import annotations

from textual.widgets import Static

from ggbench.tui.app import GgbenchApp
from ggbench.tui.widgets.runs_table import RunsTable


def table(app: GgbenchApp) -> RunsTable:
    """The list of runs."""
    return app.screen.query_one(RunsTable)


def shown(app: GgbenchApp) -> list[int]:
    """Their numbers, in order."""
    return [run.run_id for run in table(app).runs]


def chosen(app: GgbenchApp) -> int | None:
    """The number of the run under the cursor."""
    run = table(app).cursor_run
    return None if run is None else run.run_id


def message(app: GgbenchApp) -> str:
    """The status message below the list."""
    return str(app.screen.query_one("#message", Static).render())
