"""The generated parts of the README: run as a module to write them; test_readme checks them."""

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
EVIDENCE = README.parent / "scripts" / "EVIDENCE.md"
WIDTH = 100
"""Columns of every output in the README."""
_PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->\n)", re.DOTALL)


@dataclass(frozen=True)
class Shown:
    """A command line whose output depends on nothing that this machine has, and what the README shows of it."""

    line: str
    windows: tuple[tuple[str, str], ...]
    """Beginnings of the first and the last line of what is shown; what lies between them is `...`."""


SHOWN = {
    "pick": Shown(
        "ggbench pick qwen2.5-14b --gpu rtx-3060 --need-ctx 16k",
        (("Run ", "smaller"), ("llama-server", "llama-server")),
    ),
    "plan": Shown(
        "ggbench plan qwen2.5-14b q5_k_m q4_k_m q3_k_m --gpu rtx-3060 -c 16k",
        (("         BPW", "all rows"), ("what would make", "-c ")),
    ),
}
"""Commands by the name of the part."""


def generate(name: str) -> str:
    """The text between the marks of a part: the command line, and the windows of its output."""
    shown = SHOWN[name]
    lines = output_of(shown.line)
    blocks = []
    for first, last in shown.windows:
        begin = next(number for number, text in enumerate(lines) if text.startswith(first))
        end = next(number for number in range(begin, len(lines)) if lines[number].startswith(last))
        blocks.append("\n".join(lines[begin : end + 1]))
    return f"```console\n$ {shown.line}\n...\n" + "\n...\n".join(blocks) + "\n```\n"


def output_of(line: str) -> list[str]:
    """What a command line prints on stdout in a home of its own, in lines without the blanks at their ends."""
    with tempfile.TemporaryDirectory() as home:
        folders = {f"XDG_{name}_HOME": f"{home}/{name}" for name in ("DATA", "CACHE", "CONFIG", "STATE")}
        environment = os.environ | folders | {"HOME": home, "COLUMNS": str(WIDTH), "NO_COLOR": "1"}
        command = [sys.executable, "-P", "-m", *line.split()]
        ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return [text.rstrip() for text in ran.stdout.splitlines()]


def parts(text: str) -> dict[str, str]:
    return {match[2]: match[0] for match in _PART.finditer(text)}


def updated(text: str) -> str:
    return _PART.sub(lambda match: f"{match[1]}{generate(match[2])}{match[3]}", text)


if __name__ == "__main__":
    README.write_text(updated(README.read_text(encoding="utf-8")), encoding="utf-8")
