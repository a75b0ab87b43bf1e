"""Keys for a Textual app, and waiting for it by what it has left to do instead of by a clock."""

import asyncio
from typing import Any

from textual._context import active_app
from textual.app import App
from textual.pilot import Pilot

from tests.fakes.snapshots import words_of

LOOK_EVERY_S = 0.001


async def wait_until_quiet(min_sleep: float = 0, max_sleep: float = 0) -> None:
    """Until no message waits and nothing is to be drawn; workers, threads and clocks may go on.

    In place of `textual._wait.wait_for_idle`, which looks every 20 ms, twice after every key, whether the process has
    computed for less than 1 ms: that sleeps where nothing is left to do, and takes a second where a thread computes.
    """
    app: Any = active_app.get()
    loop: Any = asyncio.get_running_loop()
    while app._running:
        await asyncio.sleep(LOOK_EVERY_S)
        if loop._ready or app._resize_event is not None:  # the app passes a resize on to its screens 8 ms later
            continue
        if not app.screen_stack or not app.screen._update_timer._active.is_set():
            return
        app.screen._on_timer_update()


async def settle(app: App[Any], pilot: Pilot[None]) -> None:
    """Until no worker is at work and what they posted is drawn; a message may start another."""
    await pilot.pause()
    while any(not worker.is_finished for worker in app.workers):
        await app.workers.wait_for_complete()
        await pilot.pause()


async def press(app: App[Any], pilot: Pilot[None], *keys: str) -> str:
    """What is in view after these keys, each pressed when all has settled that the one before it began."""
    for key in keys:
        await pilot.press(key)
        await settle(app, pilot)
    return words_of(app)
