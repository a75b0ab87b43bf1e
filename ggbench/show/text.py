"""Numbers with their intervals as text, and cells that are safe in CSV and Markdown."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence

from ggbench.engines.contract import EngineConfig
from ggbench.expect.drafts import DraftStep
from ggbench.show import UNKNOWN
from ggbench.show.words import say
from ggbench.stats.intervals import Estimate
from ggbench.text import sanitize
from ggbench.units import format_count, format_number

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


def gains_text(step: DraftStep) -> str:
    """Return `1.6 times (1.3–1.9) for code, 1.4 times (1.1–1.7) for chat`."""
    gains = ((task, step.gain(task)) for task in step.lengths)
    return ", ".join(
        say("drafting.gain", gain=format_number(gain.value, 2), ends=ends_text(gain), task=task)
        for task, gain in gains
    )


def ends_text(gain: Estimate) -> str:
    """Return the interval of a gain, `1.3–1.9`."""
    return "–".join(format_number(each, 2) for each in (gain.low, gain.high))
