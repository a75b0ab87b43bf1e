"""Words: every sentence that decisions and results say, as a template in `words.toml`, by its key.

A reason is a record with a key; the terminal, the TUI, Markdown and JSON say it by the same template.
"""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from ggbench.show.figure import Value, value_text

if TYPE_CHECKING:
    from ggbench.sizing.plan_record import Note


def say(key: str, **values: Value) -> str:
    """Return the sentence of a key such as `pick.little_left`, with its values as tables show them. Raises KeyError."""
    return _templates()[key].format(**{name: value_text(value) for name, value in values.items()})


def said(note: Note | None) -> str:
    """Return the sentence of a note; empty without one."""
    return "" if note is None else say(note.key, **note.values)


@functools.cache
def _templates() -> dict[str, str]:
    rooms = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))
    return {f"{room}.{name}": text for room, texts in rooms.items() for name, text in texts.items()}
