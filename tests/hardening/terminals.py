"""Terminals of 20 columns and encodings that lack most characters."""

import os
from pathlib import Path
from unittest import mock

from tests.hardening.commands import reading_commands, stopped_commands
from tests.hardening.trials import Trials

_ENCODINGS = {"UTF-8": "utf-8", "Latin-1": "latin-1", "code page 437": "cp437"}
_WIDTHS = (1, 20, 80)
_DRAWN = {"compare": ["--plot"], "bench": ["--plot"], "decode": ["--plot"]}


def narrow_terminals(model: Path, *, is_quick: bool = False) -> Trials:
    """Print with every command, at each width and in each encoding, and with those that measure.

    Quickly: at one width, in the encoding that lacks most of the characters, and nothing measured.
    """
    encodings = {name: _ENCODINGS[name] for name in (("code page 437",) if is_quick else _ENCODINGS)}
    row = Trials("narrow terminals and encodings without most characters")
    reading = {name: [str(model) if word == "MODEL" else word for word in words] for name, words in _reading().items()}
    for label, encoding in encodings.items():
        for width in (20,) if is_quick else _WIDTHS:
            with mock.patch.dict(os.environ, {"COLUMNS": str(width)}):
                for name, words in reading.items():
                    row.run(f"{name} in {label} of {width} columns", *words, encoding=encoding)
    for label, encoding in () if is_quick else list(_ENCODINGS.items())[1:2]:
        with mock.patch.dict(os.environ, {"COLUMNS": "20"}):
            for name, long in stopped_commands(model).items():
                words = ["60" if word == "3000" else word for word in long]
                row.run(
                    f"{name} in {label} of 20 columns", *words, *_DRAWN.get(name, ()), encoding=encoding, limit_s=300
                )
    return row


def _reading() -> dict[str, list[str]]:
    commands = {name: [name, *words, *_DRAWN.get(name, ())] for name, words in reading_commands().items()}
    return commands | {
        "results show": ["results", "show", "1", "--plot"],
        "results show --json": ["results", "show", "1", "--json"],
        "no such model": ["decode", "通义—no"],
        "help": ["--help"],
    }
