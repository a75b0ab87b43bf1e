"""Meanings of marks, and of the numbers that no figure explains: for `ggbench help numbers` and the TUI's `?`."""

from __future__ import annotations

from pathlib import Path

UNSTEADY = "!"
"""Mark before the speed of a disturbed run."""
MARKED = f"{UNSTEADY} unsteady: the machine was disturbed during the measurement"
"""Caption of a table whose notes name the disturbance."""
MARKED_RUN = f"{MARKED}; ggbench results show RUN says how"
FORMULA = (
    "latency(n) = (n - 1) / W + B, with n tokens in the KV cache: W tokens of context make a token 1 ms slower, and"
    " B is the latency of the first token"
)


def terms() -> dict[str, str]:
    """Return the marks and numbers with their meanings."""
    return read_rows(Path(__file__).with_name("terms.txt").read_text("utf-8"))


def read_rows(text: str) -> dict[str, str]:
    """Return the names and meanings of lines `name :: meaning`."""
    return dict(line.split(" :: ", 1) for line in text.splitlines())
