"""Numbers with their intervals as text, and cells that are safe in CSV and Markdown."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence

from ggbench.engines.contract import EngineConfig
from ggbench.show import UNKNOWN
from ggbench.text import sanitize
from ggbench.units import format_count

_FORMULA_STARTS = ("=", "+", "-", "@")
_MARKDOWN = re.compile(r"[\\|`*<>\[\]&~]|\b_+|_+\b")


def csv_text(header: Sequence[object], rows: Iterable[Iterable[object]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return buffer.getvalue()


def without_formula(text: str) -> str:
    """Return plain text, preceded by an apostrophe if a spreadsheet would read it as a formula."""
    text = sanitize(text)
    return f"'{text}" if text.lstrip().startswith(_FORMULA_STARTS) else text


def markdown_escaped(text: str) -> str:
    """Return plain text that Markdown shows unchanged."""
    return _MARKDOWN.sub(lambda match: re.sub("(.)", r"\\\1", match[0]), sanitize(text))


def slots_text(config: EngineConfig, n_ctx: int) -> str:
    """Return ` (4 slots share it)` or ` (2,048 for each of 4 slots)`; empty for a single slot."""
    if config.n_seq_max == 1:
        return ""
    if config.n_streams == 1:
        return f" ({config.n_seq_max} slots share it)"
    return f" ({format_count(n_ctx // config.n_streams)} for each of {config.n_seq_max} slots)"


def on_off(is_on: bool | None) -> str:
    return {None: UNKNOWN, True: "on", False: "off"}[is_on]


SPEED_FROM: Mapping[str, str] = {
    "measured": "a run here",
    "forecast": "a forecast",
    "scaled": "other runs here",
    "published": "others' runs",
}
