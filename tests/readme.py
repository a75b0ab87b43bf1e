"""The README's commands and their outputs: run as a module to write those that no machine changes.

With `--measure FOLDER` it also takes what depends on the machine again, and says on which it was taken: to be run while
nothing else computes. FOLDER has quants of SmolLM2. test_readme checks both kinds.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from ggbench.machine.gpus import visible_gpus
from ggbench.machine.host import describe_cpu
from ggbench.units import counted

README = Path(__file__).parent.parent / "README.md"
EVIDENCE = README.parent / "scripts" / "EVIDENCE.md"
WIDTH = 100
"""Columns of every output in the README."""
_PART = re.compile(r"(<!-- (generated|measured): (\w+) -->\n)(```.*?\n```\n|[^\n]+\n)", re.DOTALL)
"""A mark, and what it marks: a block, or a line."""


@dataclass(frozen=True)
class Shown:
    """A command line whose output the README has whole; `#` in it begins a remark, and hides the output."""

    line: str


SHOWN = {
    "pick": (Shown("ggbench pick qwen3-30b-a3b --gpu rtx-3060 --ram 32GiB@50GB/s -c 32k"),),
    "plan": (Shown("ggbench plan qwen2.5-14b q5_k_m q4_k_m q3_k_m --gpu rtx-3060 -c 20k"),),
}
"""Commands whose output depends on nothing that this machine has, by the name of the part."""
MEASURED = {
    "forecast": (Shown("ggbench forecast qwen1.5-7b q4_k_m q8_0"),),
    "bench": (
        Shown("ggbench bench twin:qwen1.5-0.5b q8_0 q4_k_m q2_k -n 500"),
        Shown("ggbench compare 2 1"),
        Shown("ggbench report 1 2 3 -o report.html      # one file that opens without a network"),
    ),
    "maxctx": (Shown("ggbench maxctx twin:qwen1.5-0.5b q4_k_m --memory-limit 1GiB"),),
    "quality": (Shown("ggbench quality ~/models/smollm2 q2_k q3_k_m q4_k_m --base q4_1 --chunks 8"),),
}
"""Commands that measure this machine, and those that show what was measured."""
MEASURED_ON = "machine"
"""The part that says where and when the others were measured."""


def generate(shown: tuple[Shown, ...], home: Path) -> str:
    """The text between the marks of a part: its command lines and their outputs. Raises CalledProcessError."""
    lines = []
    for each in shown:
        line, _, remark = each.line.partition("  #")
        output = output_of(line, home)
        lines += [f"$ {each.line}", *([] if remark else output)]
    return "```console\n" + "\n".join(lines) + "\n```\n"


def output_of(line: str, home: Path) -> list[str]:
    """What a command line prints on stdout in this home, in lines."""
    folders = {f"XDG_{name}_HOME": f"{home}/{name}" for name in ("DATA", "CACHE", "CONFIG", "STATE")}
    environment = os.environ | folders | {"HOME": str(home), "COLUMNS": str(WIDTH), "NO_COLOR": "1"}
    words = [str(home / word[2:]) if word.startswith("~/") else word for word in line.split()]
    ran = subprocess.run(
        [sys.executable, "-P", "-m", *words],
        text=True,
        check=True,
        env=environment,
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    return ran.stdout.splitlines()


def parts(text: str, kind: str) -> dict[str, str]:
    """Return the parts of a kind, `generated` or `measured`, with their marks, by name."""
    return {match[3]: match[0] for match in _PART.finditer(text) if match[2] == kind}


def updated(text: str, kind: str, write: Callable[[str], str]) -> str:
    """Return the text with each part of a kind as `write` gives it by its name."""
    return _PART.sub(lambda match: f"{match[1]}{write(match[3])}" if match[2] == kind else match[0], text)


def generated(text: str) -> str:
    with tempfile.TemporaryDirectory() as home:
        return updated(text, "generated", lambda name: generate(SHOWN[name], Path(home)))


def _measured_part(name: str, folder: Path) -> str:
    """Return a measured part, of a home without other runs; `folder` has the quants of SmolLM2."""
    if name == MEASURED_ON:
        cpu, today = describe_cpu(), date.today()
        gpus = ", ".join(gpu.name for gpu in visible_gpus()) or "no GPU"
        taken = f"{today.day} {today:%B %Y}, {counted(cpu.n_cores, 'core')}, {cpu.name}, {gpus}"
        return f"Measurements: {taken}, with nothing else running.\n"
    with tempfile.TemporaryDirectory() as home:
        (Path(home) / "models").mkdir()
        (Path(home) / "models" / "smollm2").symlink_to(folder.resolve())
        return generate(MEASURED[name], Path(home))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", type=Path, metavar="FOLDER", help="also measure, with the quants of this folder")
    folder = parser.parse_args().measure
    text = generated(README.read_text(encoding="utf-8"))
    if folder is not None:
        text = updated(text, "measured", lambda name: _measured_part(name, folder))
    README.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
