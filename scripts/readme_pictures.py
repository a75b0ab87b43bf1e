"""The README's pictures: the TUI as it is, driven by keys, and a report of its runs, in a home of their own."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from textual.pilot import Pilot

from ggbench.hub.access import HubAccess
from ggbench.models.added_places import add_place
from ggbench.tui.app import GgbenchApp
from ggbench.tui.host import Services
from tests.fakes.driving import normalised, words_of

FOLDER = Path(__file__).parent.parent / ".readme"
_SIZE = (120, 36)
_LOOK_EVERY_S = 0.2
_SETTLES_S = 1.0
_DEADLINE_S = 120.0
_MODEL = "qwen2.5-14b"
_N_GEN = 1000
_NEARLY_DONE = 0.7
"""The share of its tokens that a run in a picture has decoded."""

_BROWSERS = "chromium", "chromium-browser", "google-chrome"
_PAGE = "1200,1000"
"""Pixels of a report's head."""

_Step = Callable[[GgbenchApp, Pilot[None]], Awaitable[None]]


async def _until(app: GgbenchApp, is_there: Callable[[str], object]) -> None:
    """Wait for what the screen shows. Raises TimeoutError with what it shows instead."""
    try:
        async with asyncio.timeout(_DEADLINE_S):
            while not is_there(words_of(app)):
                await asyncio.sleep(_LOOK_EVERY_S)
    except TimeoutError:
        raise TimeoutError(words_of(app)) from None
    await asyncio.sleep(_SETTLES_S)


def _take(app: GgbenchApp, name: str) -> None:
    (FOLDER / f"{name}.svg").write_text(normalised(app.export_screenshot(title="ggbench")), encoding="utf-8")
    print(f"{name}.svg", flush=True)


async def _library(app: GgbenchApp, pilot: Pilot[None]) -> None:
    await _until(app, lambda words: "★" in words)
    await pilot.press("g", *"3060", "enter")
    await _until(app, lambda words: "planned for RTX 3060" in words and "★" in words)
    await pilot.press("e", "down", *"16k", "enter")
    await _until(app, lambda words: "16,384 tokens" in words and "planning" not in words and "★" in words)
    await pilot.press("home")
    await _until(app, lambda words: "n_ctx 16,384" in words and "✓ left" in words)
    _take(app, "library")


async def _pick(app: GgbenchApp, pilot: Pilot[None]) -> None:
    await pilot.press("w")
    await _until(app, lambda words: "Run q" in words and "reserve" in words)
    _take(app, "pick")


def _share_of_last(app: GgbenchApp) -> float:
    """Return the share of its tokens that the last run in the queue has decoded."""
    live, last = app.run_queue.live, app.run_queue.items[-1]
    return 0.0 if live is None or live.item_id != last.id else live.n_done / max(1, live.n_total)


async def _run(app: GgbenchApp, pilot: Pilot[None]) -> None:
    """Measure two quants of the folder, one after the other, and take the second while it decodes."""
    await _until(app, lambda words: "★" in words)
    await pilot.press("home", "space", "end", "space", "b")
    await _until(app, lambda words: "⏎ start" in words)
    await pilot.press(*str(_N_GEN), "enter")
    await _until(app, lambda words: "✓ a" in words and _share_of_last(app) > _NEARLY_DONE)
    await pilot.press("1", "2")  # draws what is decoded by now
    _take(app, "run")
    await _until(app, lambda words: "✓ b" in words)


async def _compare(app: GgbenchApp, pilot: Pilot[None]) -> None:
    await pilot.press("3")
    await _until(app, lambda words: "2 runs" in words)
    await pilot.press("home", "space", "down", "space", "c")
    await _until(app, lambda words: "runs 1 with 2" in words)
    _take(app, "compare")


def _report(home: Path) -> None:
    """Show the report of all runs in a browser, in light colours. Raises CalledProcessError, SystemExit without one."""
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        sys.exit(f"report.png needs a browser: one of {', '.join(_BROWSERS)}")
    page = home / "report.html"
    subprocess.run(
        [sys.executable, "-P", "-m", "ggbench", "report", "1", "2", "-q", "-o", str(page)], check=True
    )
    as_root = ["--no-sandbox"] if os.geteuid() == 0 else []
    look = ["--headless", "--hide-scrollbars", f"--window-size={_PAGE}", f"--user-data-dir={home / 'browser'}"]
    picture = FOLDER / "report.png"
    subprocess.run(
        [browser, *look, *as_root, f"--screenshot={picture}", page.as_uri()], check=True, capture_output=True
    )
    print(picture.name, flush=True)


async def _follow(opens: Path | str, steps: list[_Step]) -> None:
    """Take these steps one after the other in one app."""
    if isinstance(opens, Path):
        opens = add_place(opens)[0].paths[0]
    app = GgbenchApp(Services(HubAccess.from_environment(offline=True)), opens=opens)
    async with app.run_test(size=_SIZE) as pilot:
        for step in steps:
            await step(app, pilot)
    app.close_queues()


def main() -> int:
    """A pick for a card that is not here; with a folder, runs of two of its files, their comparison and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="a folder with quants of one small trained model")
    folder = parser.parse_args().folder
    with tempfile.TemporaryDirectory() as home:
        os.environ.update({f"XDG_{name}_HOME": f"{home}/{name}" for name in ("DATA", "CONFIG", "STATE")})
        asyncio.run(_follow(_MODEL, [_library, _pick]))
        if folder is not None:
            asyncio.run(_follow(folder.resolve(), [_run, _compare]))
            _report(Path(home))
    return 0


if __name__ == "__main__":
    sys.exit(main())
