"""Colours and fonts of charts: literal ones in a picture, a page's own variables in HTML."""

from __future__ import annotations

import msgspec

from ggbench.show.plot.palette import ON_PAPER

FONT = "system-ui, 'Segoe UI', Roboto, 'Liberation Sans', 'DejaVu Sans', sans-serif"
"""Fonts that a desktop has; a browser loads none."""


class Look(msgspec.Struct, frozen=True):
    """How charts look."""

    series: tuple[str, ...]
    """Colours of runs by their index; they repeat."""
    ink: str
    """Titles and labels."""
    muted: str
    """Axes, ticks and limits."""
    grid: str
    page: str | None
    """The background; None is transparent."""

    def color(self, index: int) -> str:
        """Return the colour of the run, or of the part of a stack, at that index."""
        return self.series[index % len(self.series)]


PICTURE = Look(ON_PAPER, "#1b1b1b", "#6b6b6b", "#e3e3e3", "#ffffff")
"""Of SVG and PNG, which may be opened on any background."""
PAGE = Look(
    tuple(f"var(--run{index})" for index in range(len(ON_PAPER))), "var(--ink)", "var(--muted)", "var(--grid)", None
)
"""Of HTML, whose style sheet has the variables for light, dark and paper."""
