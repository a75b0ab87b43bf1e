"""The app driven by keys: waiting for what it has left to do, and what its screens show, as text and as pictures.

GGBENCH_UPDATE_GOLDEN=1 writes the pictures anew, to be read.
"""

import asyncio
import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec.structs
from textual._context import active_app
from textual.app import App
from textual.events import Key
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Static, Tabs
from textual.worker import WorkerCancelled

from ggbench.models.disk import LocalModel
from ggbench.tui.app import GgbenchApp
from ggbench.tui.host import Services
from ggbench.tui.widgets.runs_table import RunsTable
from ggbench.tui.widgets.tables import QuantsTable

LOOK_EVERY_S = 0.001
NEED_16K = ("e", "down", *"16k", "enter")
"""Keys of the Library that ask for another context, and so plan again."""


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
        if getattr(app, "_handed_over", None) is not None:  # a key
            continue
        if not app.screen_stack:
            return
        if app._batch_count:  # a screen that is drawn during a batch forgets it
            continue
        under = app._background_screens  # below a dialog; only layout counts, as they redraw forever
        due = [each for each in under if each._layout_required or each._scroll_required]
        if app.screen._update_timer._active.is_set() or _is_due(app.screen):
            due.append(app.screen)
        for screen in due:
            screen._on_timer_update()
        if not due:
            return


def _is_due(screen: Screen[Any]) -> bool:
    """Whether the screen has something left to lay out or to draw."""
    return bool(screen._layout_required or screen._scroll_required or screen._repaint_required or screen._dirty_widgets)


async def settle(app: App[Any], pilot: Pilot[None]) -> None:
    """Until no worker is at work and what they posted is drawn; a message may start another."""
    await pilot.pause()
    while any(not worker.is_finished for worker in app.workers):
        with contextlib.suppress(WorkerCancelled):  # another took its place
            await app.workers.wait_for_complete()
        await pilot.pause()


async def press(app: App[Any], pilot: Pilot[None], *keys: str) -> None:
    """Press these keys, each when all has settled that the one before it began."""
    for key in keys:
        await pilot.press(key)
        await settle(app, pilot)


async def see(app: App[Any], pilot: Pilot[None], *keys: str) -> str:
    """What is in view after these keys; drawing it takes longer than most keys."""
    await press(app, pilot, *keys)
    return words_of(app)


async def burst(app: App[Any], pilot: Pilot[None], *keys: str) -> str:
    """What is in view after these keys, all typed before the first is handled."""
    for key in keys:
        app.post_message(Key(key, {"space": " "}.get(key, key if len(key) == 1 else None)))
    await settle(app, pilot)
    return words_of(app)


async def click(app: App[Any], pilot: Pilot[None], text: str) -> str:
    """What is in view after a click on the last place where this text is drawn."""
    y, line = [(y, line) for y, line in enumerate(words_of(app).splitlines()) if text in line][-1]
    await pilot.click(offset=(line.rindex(text), y))
    await settle(app, pilot)
    return words_of(app)


SNAPSHOTS = Path(__file__).parents[1] / "data" / "snapshots"

_ID = re.compile(r"terminal-\d+-")
_FONT_FACE = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


def normalised(svg: str) -> str:
    """Without what differs from run to run, and without fonts that a viewer would fetch."""
    return _FONT_FACE.sub("", _ID.sub("terminal-", svg))


def check_snapshot(app: App[Any], name: str) -> None:
    app.screen.refresh()  # a dialog that `words_of` drew has nothing behind it
    path, shown = SNAPSHOTS / f"{name}.svg", normalised(app.export_screenshot(title=app.title))
    if os.environ.get("GGBENCH_UPDATE_GOLDEN") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(shown, encoding="utf-8")
    assert path.exists(), f"no snapshot {path.name}: write it with GGBENCH_UPDATE_GOLDEN=1, and look at it"
    assert shown == path.read_text(encoding="utf-8"), f"{path.name} differs: see GGBENCH_UPDATE_GOLDEN=1"


def words_of(app: App[Any]) -> str:
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips)


def said(app: App[Any]) -> str:
    """What the last key did, as a toast tells."""
    return " ".join(str(each.message) for each in app._notifications)


async def choose(app: GgbenchApp, pilot: Pilot[None], model: str, n_before: int = 0) -> str:
    """Type the model's name and choose it, after those that match too."""
    return await see(app, pilot, "slash", *model, "enter", *["j"] * n_before, "enter")


async def ask(app: GgbenchApp, pilot: Pilot[None], kind: str) -> str:
    """Open the dialog of a measurement, and choose the experiment."""
    await press(app, pilot, "b")
    await show_kind(app, pilot, kind)
    return words_of(app)


async def show_kind(app: GgbenchApp, pilot: Pilot[None], kind: str) -> None:
    """Choose the experiment in the open dialog, and wait until its fields took the place of others."""
    dialog: Any = app.screen
    dialog.query_one("#what", Tabs).active = kind
    await settle(app, pilot)
    while dialog._experiment.kind != kind or [f"line_{field.name}" for field in dialog.fields] != [
        line.id for line in dialog.query_one("#lines").children
    ]:
        await settle(app, pilot)
    assert dialog.query_one("#what", Tabs).active == kind


def table(app: GgbenchApp) -> QuantsTable:
    return app.screen.query_one(QuantsTable)


def names(app: GgbenchApp) -> list[str]:
    return [row.title for row in table(app).shown.values()]


def with_disk(services: Services, *models: LocalModel) -> GgbenchApp:
    def local_models() -> Sequence[LocalModel]:
        return models

    return GgbenchApp(msgspec.structs.replace(services, local_models=local_models))


def runs_table(app: GgbenchApp) -> RunsTable:
    return app.screen.query_one(RunsTable)


def shown(app: GgbenchApp) -> list[int]:
    return [run.run_id for run in runs_table(app).shown.values()]


def chosen(app: GgbenchApp) -> int | None:
    run = runs_table(app).chosen
    return None if run is None else run.run_id


def message(app: GgbenchApp) -> str:
    return str(app.screen.query_one("#message", Static).render())
