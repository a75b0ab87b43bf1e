"""Meanings of the numbers and marks in tables: one text for `ggbench help numbers` and the TUI's `?`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

UNSTEADY = "!"
"""Mark before the speed of a disturbed run."""
MARKED = f"{UNSTEADY} unsteady: the machine was disturbed during the measurement"
"""Caption of a table whose notes name the disturbance."""
MARKED_RUN = f"{MARKED}; ggbench results show RUN says how"


class Term(NamedTuple):
    name: str
    text: str


FORMULA = "latency(n) = (n - 1) / W + B, with n tokens in the KV cache"

_FOLDER = Path(__file__).parent


def read_rows(text: str) -> list[tuple[str, ...]]:
    return [tuple(line.split(" :: ")) for line in text.splitlines()]


TERMS = {key: Term(name, text) for key, name, text in read_rows((_FOLDER / "terms.txt").read_text("utf-8"))}
"""Every term by its key, in the order of `ggbench help numbers`."""


def terms() -> list[tuple[str, str]]:
    return [(term.name, term.text) for term in TERMS.values()]


def provenance() -> list[tuple[str, ...]]:
    """Return the meanings of `measured`, `predicted` and similar words in tables."""
    return read_rows((_FOLDER / "provenance.txt").read_text("utf-8"))
