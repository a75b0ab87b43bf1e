"""A table that scrolls by whole columns: what is in view is never a part of a number."""

import asyncio
import re

import pytest
from rich.text import Text
from textual.app import App, ComposeResult

from ggbench.tui.widgets.quants_table import ColumnTable

_CELLS = ("q4_k_m", "4.85", "14.6 GiB", "628.1 MiB", "10.92 ±0.08", "226,816*")


class _Page(App[None]):
    def __init__(self, width: int) -> None:
        super().__init__()
        self._width = width

    def compose(self) -> ComposeResult:
        table = ColumnTable(cursor_type="row", fixed_columns=1)
        table.styles.width = self._width
        yield table

    def on_mount(self) -> None:
        table = self.query_one(ColumnTable)
        for index, text in enumerate(_CELLS):
            table.add_column(Text(f"c{index}"), width=len(text))
        table.add_row(*map(Text, _CELLS))


@pytest.mark.parametrize("width", range(20, 70, 3))
def test_no_number_is_cut_wherever_the_table_is_scrolled_to(width: int) -> None:
    async def run() -> None:
        page = _Page(width)
        async with page.run_test(size=(80, 6)) as pilot:
            await pilot.pause()
            table, seen = page.query_one(ColumnTable), set()
            for x in range(round(table.max_scroll_x) + 1):
                table.scroll_to(x=x, animate=False)
                await pilot.pause()
                texts = re.split(" {2,}", table.render_line(1).text.strip())
                assert set(texts) <= set(_CELLS)
                seen |= set(texts)
            assert seen == set(_CELLS)
            table.scroll_to(x=0, animate=False)
            seen = set()
            for _ in _CELLS:
                seen |= set(re.split(" {2,}", table.render_line(1).text.strip()))
                table.action_scroll_right()
                await pilot.pause()
            assert seen == set(_CELLS)
            for _ in _CELLS:
                table.action_scroll_left()
                await pilot.pause()
            assert table.scroll_x == 0

    asyncio.run(run())


def test_the_header_shows_where_there_are_more_columns() -> None:
    async def run() -> None:
        page = _Page(30)
        async with page.run_test(size=(80, 6)) as pilot:
            await pilot.pause()
            table = page.query_one(ColumnTable)
            assert table.render_line(0).text.rstrip().endswith("›")
            assert "‹" not in table.render_line(0).text
            table.scroll_to(x=table.max_scroll_x, animate=False)
            await pilot.pause()
            assert "‹" in table.render_line(0).text
            assert "›" not in table.render_line(0).text

    asyncio.run(run())
