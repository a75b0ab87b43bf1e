"""SVG snapshots of screens, compared with files that were read before they were accepted.

GGBENCH_UPDATE_GOLDEN=1 rewrites them, to be read.
"""

import os
import re
from pathlib import Path
from typing import Any

from textual.app import App

SNAPSHOTS = Path(__file__).parents[1] / "data" / "snapshots"

_ID = re.compile(r"terminal-\d+-")
_FONT_FACE = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


def normalised(svg: str) -> str:
    """Without what differs from run to run, and without fonts that a viewer would fetch."""
    return _FONT_FACE.sub("", _ID.sub("terminal-", svg))


def check_snapshot(app: App[Any], name: str) -> None:
    shown = normalised(app.export_screenshot(title=app.title))
    path = SNAPSHOTS / f"{name}.svg"
    if os.environ.get("GGBENCH_UPDATE_GOLDEN") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(shown, encoding="utf-8")
    assert path.exists(), f"no snapshot {path.name}: write it with GGBENCH_UPDATE_GOLDEN=1, and look at it"
    assert shown == path.read_text(encoding="utf-8"), f"{path.name} differs: see GGBENCH_UPDATE_GOLDEN=1"


def words_of(app: App[Any]) -> str:
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips)
