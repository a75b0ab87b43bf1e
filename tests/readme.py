"""The generated parts of the README: run as a module to write them; test_readme checks them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
EVIDENCE = README.parent / "scripts" / "EVIDENCE.md"
_PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->\n)", re.DOTALL)


def generate(name: str) -> str:
    """The text between the marks of a part."""
    return {"help": _help}[name]()


def parts(text: str) -> dict[str, str]:
    """Every generated part as the text has it."""
    return {match[2]: match[0] for match in _PART.finditer(text)}


def updated(text: str) -> str:
    """The text with every part generated."""
    return _PART.sub(lambda match: f"{match[1]}{generate(match[2])}{match[3]}", text)


def _help() -> str:
    environment = os.environ | {"COLUMNS": "80", "NO_COLOR": "1"}
    command = [sys.executable, "-P", "-m", "ggbench", "--help"]
    text = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    return f"```console\n$ ggbench --help\n{text}```\n"


if __name__ == "__main__":
    README.write_text(updated(README.read_text(encoding="utf-8")), encoding="utf-8")
