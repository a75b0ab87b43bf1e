"""Meanings of the numbers and marks in tables: one text for `--help`, `ggbench help numbers` and the TUI's `?`."""

from __future__ import annotations

from collections.abc import Iterable
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

DECODE = (
    "w",
    "b",
    "speed",
    "users",
    "w_ratio",
    "b_ratio",
    "b_w16",
    "bpw",
    "interval",
    "bound",
    "unknown",
    "unsteady",
)
PREFILL = ("prefill", "interval", "bound", "unknown")
SPEED = ("qwen2_5", "qwen3", "throughput", "case_memory", "unknown")
PLAN = ("w", "b", "bpw", "best_speed", "unknown", "training", "ceiling", "fits")
PICK = ("loss", "answer", "turn", "no_needs", "interval", "unknown", "training", "ceiling", "fits")
MAXCTX = ("planned", "theory", "unknown")
LIMITS = ("w", "b", "bpw", "best_speed", "knee", "unknown")
LISTS = ("w", "b", "speed", "interval", "bound", "unknown", "unsteady")


def terms(keys: Iterable[str] = TERMS) -> list[tuple[str, str]]:
    return [(TERMS[key].name, TERMS[key].text) for key in keys]


def provenance() -> list[tuple[str, ...]]:
    """Return the meanings of `measured`, `predicted` and similar words in tables."""
    return read_rows((_FOLDER / "provenance.txt").read_text("utf-8"))
