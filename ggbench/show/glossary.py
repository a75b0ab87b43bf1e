"""What the numbers and marks of every table mean: one text for `--help`, `ggbench help numbers` and the TUI's `?`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

UNSTEADY = "!"
"""Mark before the speed of a run that was disturbed."""
MARKED = f"{UNSTEADY} unsteady: the machine was disturbed while this was measured"
"""Caption of a table whose notes say what was seen."""
MARKED_RUN = f"{MARKED}; ggbench results show RUN says how"
"""Caption of a list of runs."""


class Term(NamedTuple):
    """A number or a mark as tables show it, with its meaning."""

    name: str
    text: str


FORMULA = "latency(n) = (n - 1) / W + B, with n tokens in the KV cache"

_FOLDER = Path(__file__).parent


def read_rows(text: str) -> list[tuple[str, ...]]:
    """Return the lines `name :: meaning` of a text, split."""
    return [tuple(line.split(" :: ")) for line in text.splitlines()]


TERMS = {key: Term(name, text) for key, name, text in read_rows((_FOLDER / "terms.txt").read_text("utf-8"))}
"""Every term by its key, in the order of `ggbench help numbers`."""

DECODE = ("w", "b", "speed", "w_ratio", "b_ratio", "b_w16", "bpw", "interval", "bound", "unknown", "unsteady")
"""What a decode shows."""
PREFILL = ("prefill", "interval", "bound", "unknown")
"""What a prefill shows."""
SPEED = ("qwen2_5", "qwen3", "throughput", "ttft", "step", "case_memory", "w", "b", "interval", "bound", "unknown")
"""What a run by input length and batch size shows."""
PLAN = ("w", "b", "bpw", "best_speed", "unknown", "training", "ceiling", "fits")
"""What a plan shows."""
PICK = ("loss", "answer", "turn", "no_needs", "interval", "unknown", "training", "ceiling", "fits")
"""What a pick shows."""
MAXCTX = ("planned", "theory", "unknown")
"""What a search for the largest context shows."""
LIMITS = ("w", "b", "bpw", "best_speed", "knee", "unknown")
"""What theory shows."""
LISTS = ("w", "b", "speed", "interval", "bound", "unknown", "unsteady")
"""What a list of runs shows."""


def terms(keys: Iterable[str] = TERMS) -> list[tuple[str, str]]:
    """Return names and meanings, for a list of definitions."""
    return [(TERMS[key].name, TERMS[key].text) for key in keys]


def provenance() -> list[tuple[str, ...]]:
    """Return where a number comes from, as tables say it."""
    return read_rows((_FOLDER / "provenance.txt").read_text("utf-8"))
