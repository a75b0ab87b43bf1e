"""The list of jobs: which of them is in view."""

import asyncio

from textual.app import App, ComposeResult

from ggbench.models.subject import Subject
from ggbench.tui.run_queue import QueueItem
from ggbench.tui.widgets.run_panels import QueueList
from ggbench.tui.work_queue import WorkState
from tests.fakes.driving import settle


class _ListApp(App[None]):
    CSS = "QueueList { height: 5; border: none; }"

    def compose(self) -> ComposeResult:
        yield QueueList()


def _items(current: int, n_jobs: int = 20) -> list[QueueItem]:
    """Jobs of which those before `current` are done, and `current` decodes."""

    def state(index: int) -> WorkState:
        if index == current:
            return WorkState.DECODING
        return WorkState.SKIPPED if index < current else WorkState.WAITING

    return [
        QueueItem(Subject(model="model", quant=f"q{index}", source="file"), "decode", id=index, state=state(index))
        for index in range(n_jobs)
    ]


def test_the_running_job_is_in_view_unless_another_was_chosen() -> None:
    async def steps() -> None:
        app = _ListApp()
        async with app.run_test(size=(60, 10)) as pilot:
            shown = app.query_one(QueueList)

            async def run(current: int) -> int | None:
                shown.show(_items(current), {}, paused=False)
                await settle(app, pilot)
                return shown.highlighted

            def is_in_view(index: int) -> bool:
                return shown.scroll_offset.y <= index < shown.scroll_offset.y + 5

            for current in (0, 7, 19):
                assert await run(current) == current
                assert is_in_view(current)
            assert await run(12) == 12
            shown.highlighted = 3
            assert await run(13) == 3
            assert is_in_view(3)
            shown.highlighted = 13
            assert await run(13) == 13
            assert await run(14) == 14

    asyncio.run(steps())
