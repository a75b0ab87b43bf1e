"""What marks a run that this ggbench did not measure."""

from __future__ import annotations

from dataclasses import dataclass

Cell = str | int | float | bool | list[int | float] | None
"""What one field of another tool's row holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """Where an imported run comes from. All texts are another's: untrusted."""

    tool: str
    """That measured it: `llama-bench`, `ggbench 0.1.0`."""
    file: str
    """Name of the file, without its folder."""
    file_sha256: str
    """Of the file's bytes."""
    content_sha256: str
    """Of what makes this run: equal for the same rows in any file, so that they are imported once."""
    lacks: tuple[str, ...] = ()
    """What the file does not say, and what follows from it, for people."""


@dataclass(frozen=True, slots=True)
class ImportedRow:
    """One row of another tool, under its own field names, so that it can be exported as it came."""

    tool: str
    fields: dict[str, Cell]
