"""The README's pictures: the TUI as it is, driven by keys."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

from textual.pilot import Pilot

from ggbench.tui.app import GgbenchApp
from ggbench.tui.services import Services
from tests.fakes.snapshots import normalised, words_of

FOLDER = Path(__file__).parent.parent / ".readme"
_SIZE = (120, 38)
_LOOK_EVERY_S = 0.2
_DEADLINE_S = 200.0
_MODEL = "qwen2.5-14b"


async def _until(app: GgbenchApp, is_there: Callable[[str], bool]) -> None:
    """Wait for what the screen shows. Raises TimeoutError."""
    async with asyncio.timeout(_DEADLINE_S):
        while not is_there(words_of(app)):
            await asyncio.sleep(_LOOK_EVERY_S)
    await asyncio.sleep(1)


def _take(app: GgbenchApp, name: str) -> None:
    (FOLDER / f"{name}.svg").write_text(normalised(app.export_screenshot(title="ggbench")), encoding="utf-8")
    print(f"{name}.svg", flush=True)


async def _library(app: GgbenchApp, pilot: Pilot[None]) -> None:
    await _until(app, lambda words: "q2_k" in words and "✓" in words)
    await pilot.press("g", *"3060", "enter")
    await _until(app, lambda words: "RTX 3060" in words and "✓" in words)
    await pilot.press("right")
    await _until(app, lambda words: "at 16k" in words and "✗" in words)
    await pilot.press("down", "down", "down")
    await asyncio.sleep(1)
    _take(app, "library")


async def _pick(app: GgbenchApp, pilot: Pilot[None]) -> None:
    await pilot.press("P")
    await _until(app, lambda words: "Pick" in words)
    await pilot.press("enter")
    await _until(app, lambda words: "Run q" in words)
    _take(app, "pick")


async def _take_all(names: list[str]) -> None:
    """Plans of a model for a card that is not here, and which of its quants to run."""
    steps = {"library": _library, "pick": _pick}
    app = GgbenchApp(Services.of_this_machine(offline=True), opens=_MODEL)
    async with app.run_test(size=_SIZE) as pilot:
        for take in [take for name, take in steps.items() if not names or name in names]:
            await take(app, pilot)
    app.close_queues()


def main() -> int:
    """Take each picture that was asked for, in their order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], "library", "pick"], help="default: all")
    asyncio.run(_take_all(parser.parse_args().names))
    return 0


if __name__ == "__main__":
    sys.exit(main())
