"""The list of runs is wider than most windows: it scrolls by whole columns."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from ggbench.tui.app import GgbenchApp
from ggbench.tui.stored_runs import COLUMNS_OF_RUNS
from ggbench.tui.widgets.runs_table import RunsTable
from tests.fakes.driving import press
from tests.fakes.jobs import FakeServices
from tests.fakes.measured import fill
from tests.tui.conftest import Drive


@pytest.mark.parametrize("width", [80, 97, 120])
def test_no_number_is_cut(app: GgbenchApp, jobs: FakeServices, drive: Drive, width: int) -> None:
    fill(jobs.folder / "results.sqlite")

    async def steps(app: GgbenchApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "3")
        table = app.screen.query_one(RunsTable)
        run = table.runs[1]
        assert run.is_completed
        numbers = [column.text(run).strip() for column in COLUMNS_OF_RUNS if column.right_aligned]
        seen: set[str] = set()
        for x in range(round(table.max_scroll_x) + 1):
            table.scroll_to(x=x, animate=False)
            await pilot.pause()
            line = table.render_line(2).text
            headers = table.render_line(0).text
            for column, text in zip([c for c in COLUMNS_OF_RUNS if c.right_aligned], numbers, strict=True):
                if f" {column.header} " in f" {headers} " and column.header:
                    assert text in line, (x, column.header)
                    seen.add(column.header)
        assert seen >= {column.header for column in COLUMNS_OF_RUNS if column.right_aligned and column.header} - {"run"}

    drive(app, steps, (width, 24))
