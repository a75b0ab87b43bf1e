"""The generated parts of the README: run as a module to write them; test_readme checks them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
_PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->\n)", re.DOTALL)


def generate(name: str) -> str:
    """The text between the marks of a part."""
    return {"help": _help, "columns": _columns, "defaults": _defaults}[name]()


def parts(text: str) -> dict[str, str]:
    """Every generated part as the text has it."""
    return {match[2]: match[0] for match in _PART.finditer(text)}


def updated(text: str) -> str:
    """The text with every part generated."""
    return _PART.sub(lambda match: f"{match[1]}{generate(match[2])}{match[3]}", text)


def _help() -> str:
    environment = os.environ | {"COLUMNS": "100", "NO_COLOR": "1"}
    command = [sys.executable, "-P", "-m", "ggbench", "--help"]
    text = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    return f"```console\n$ ggbench --help\n{text}```\n"


def _columns() -> str:
    from ggbench.report.columns import BENCH, COLUMNS

    lines = ["| column | unit | meaning |", "|---|---|---|"]
    for key in (*BENCH, "max_n_ctx"):
        column = COLUMNS[key]
        lines.append(f"| {column.header} | {column.unit} | {column.doc} |")
    return "\n".join(lines) + "\n"


def _defaults() -> str:
    from ggbench.engine.llama_defaults import BEYOND, CONTEXT, MODEL

    reasons = {name: default.reason for name, default in {**CONTEXT, **MODEL}.items() if default.reason}
    lines = ["| llama.cpp | ggbench |", "|---|---|"]
    lines += [f"| `{name}` | {text} |" for name, text in {**reasons, **BEYOND}.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    README.write_text(updated(README.read_text(encoding="utf-8")), encoding="utf-8")
