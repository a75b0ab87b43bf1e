"""The README's commands and their outputs: run as a module to write those that no machine changes.

With `--measure FOLDER` it also takes what depends on the machine again, and says on which it was taken: to be run while
nothing else computes. FOLDER has quants of SmolLM2. test_readme checks both kinds.
"""

import argparse
import os
import re
import shlex
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
    """A command line, and which lines of its output the README leaves out, such as its notes."""

    line: str
    left_out: slice


SHOWN = {
    "pick": Shown("ggbench pick --gpu rtx-3060 --ram 32GiB@50GB/s -c 32k", slice(7, None)),
    "check": Shown(
        "ggbench check 'llama-server -m Qwen3-30B-A3B-Q4_K_M.gguf -ngl 99 -ncmoe 38 -c 65536 -np 4' --gpu rtx-3060",
        slice(6, None),
    ),
    "plan": Shown("ggbench plan qwen3.8-27b q6_k q5_k_m --gpu rtx-3090 --mtp -np 2 -c 32k", slice(6, None)),
}
"""Commands whose output depends on nothing that this machine has, by the name of the part."""
MEASURED = {
    "decode": Shown("ggbench decode ~/models/smollm2 q4_1 -n 1000 --plot", slice(2, -20)),
    "quality": Shown("ggbench quality ~/models/smollm2 q2_k q3_k_m q4_k_m --base q4_1 --chunks 8", slice(7, None)),
}
"""Commands that measure this machine."""
MEASURED_ON = "machine"
"""The part that says where and when the others were measured."""


def generate(shown: Shown, home: Path) -> str:
    """Return the block of a command line and its output. Raises CalledProcessError."""
    lines = output_of(shown.line, home)
    if lines[shown.left_out]:
        lines[shown.left_out] = ["..."]
    return "\n".join(["```console", f"$ {shown.line}", *lines, "```\n"])


def output_of(line: str, home: Path) -> list[str]:
    """What a command line prints on stdout in this home, in lines."""
    folders = {f"XDG_{name}_HOME": f"{home}/{name.lower()}" for name in ("DATA", "CACHE", "CONFIG", "STATE")}
    fixed = {"HOME": str(home), "COLUMNS": str(WIDTH), "NO_COLOR": "1", "HF_HUB_OFFLINE": "1"}
    environment = os.environ | folders | fixed
    words = [str(home / word[2:]) if word.startswith("~/") else word for word in shlex.split(line)]
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


def generated(text: str, home: Path) -> str:
    return updated(text, "generated", lambda name: generate(SHOWN[name], home))


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
    with tempfile.TemporaryDirectory() as home:
        text = generated(README.read_text(encoding="utf-8"), Path(home))
    if folder is not None:
        text = updated(text, "measured", lambda name: _measured_part(name, folder))
    README.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
