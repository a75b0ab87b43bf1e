"""The small text files under /proc and /sys, where a missing one is an answer and not an error."""

from __future__ import annotations

from pathlib import Path

PROC = Path("/proc")
SYSFS = Path("/sys")


def read_text(file: Path) -> str | None:
    """The file's text without surrounding space; None where it is missing or not to be read."""
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return None


def read_number(file: Path) -> int | None:
    """The one whole number in the file; None where there is none, as in a limit that reads `max`."""
    text = read_text(file)
    return int(text) if text is not None and text.isdecimal() else None
