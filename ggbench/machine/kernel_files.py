"""Reads small text files under /proc and /sys, where a missing file is a valid result."""

from __future__ import annotations

from pathlib import Path

PROC = Path("/proc")
SYSFS = Path("/sys")


def read_text(file: Path) -> str | None:
    """Return the file's text, stripped; None where it is missing or unreadable."""
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return None


def read_number(file: Path) -> int | None:
    """Return the integer in the file; None where there is none, as in a limit of `max`."""
    text = read_text(file)
    return int(text) if text is not None and text.isdecimal() else None
