"""What the Results screen shows."""

from textual.widgets import Static

from ggbench.tui.app import GgbenchApp
from ggbench.tui.widgets.runs_table import RunsTable


def table(app: GgbenchApp) -> RunsTable:
    return app.screen.query_one(RunsTable)


def shown(app: GgbenchApp) -> list[int]:
    return [run.run_id for run in table(app).runs]


def chosen(app: GgbenchApp) -> int | None:
    run = table(app).cursor_run
    return None if run is None else run.run_id


def message(app: GgbenchApp) -> str:
    return str(app.screen.query_one("#message", Static).render())
