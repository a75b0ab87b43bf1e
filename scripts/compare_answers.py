"""The comparison behind scripts/compare_answers: `plan` and `pick` of every model of the catalog, here and at a commit.

All commands of a tree run in one process, with a data and a cache folder of their own, so no stored run counts. The
machines are described, so their free memory is always the same.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ggbench.models.catalog import load_catalog
from scripts.bench_answers import ROOT, checked_out

MACHINES = ("--gpu rtx-3060", "--gpu rtx-3090 --ram 64GiB@60GB/s", "--gpu m4-pro-24gb", "--ram 32GiB@50GB/s")
_SHOWN = 5
"""Differences to print of each answer."""
_RUN = """
import contextlib, io, json, sys
from ggbench.cli.main import main
for line in sys.stdin:
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(json.loads(line))
        except SystemExit as end:
            code = end.code
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""
"""Reads the arguments of a command from each line, and writes its exit code, stdout and stderr in a line."""


def main() -> int:
    """Print the answers that differ; exit with 1 if any does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit")
    parser.add_argument("models", nargs="*", help="ids; default: the whole catalog")
    parser.add_argument("--machine", action="append", help="options, e.g. '--gpu rtx-3060'; default: four machines")
    asked = parser.parse_args()
    models = asked.models or [model.id for model in load_catalog().models]
    commands = [
        f"{command} {model} --json {machine}"
        for machine in asked.machine or MACHINES
        for model in models
        for command in ("plan", "pick")
    ]
    with tempfile.TemporaryDirectory(prefix="ggbench-compare-answers-") as name, ThreadPoolExecutor(2) as pool:
        trees = (ROOT, checked_out(asked.commit, Path(name)))
        homes = Path(name) / "here", Path(name) / "there"
        here, there = pool.map(_answers, trees, (commands, commands), homes)
    codes: collections.Counter[int] = collections.Counter(code for code, *_ in here)
    n_different = 0
    for command, new, old in zip(commands, here, there, strict=True):
        found = list(_differences(old, new))
        n_different += bool(found)
        if found:
            print(f"ggbench {command}")
            print("\n".join(f"  {each}" for each in found[:_SHOWN]))
            if len(found) > _SHOWN:
                print(f"  and {len(found) - _SHOWN} more")
    by_code = ", ".join(f"{count} with exit code {code}" for code, count in sorted(codes.items()))
    print(f"{n_different} of {len(commands)} answers differ from those at {asked.commit}; here {by_code}")
    return 1 if n_different else 0


def _answers(tree: Path, commands: Sequence[str], home: Path) -> list[tuple[int, object, str]]:
    """Return exit code, document and stderr of each command."""
    folders = {f"XDG_{name}_HOME": str(home / name.lower()) for name in ("DATA", "CACHE", "CONFIG")}
    home.mkdir()
    lines = "".join(f"{json.dumps(shlex.split(command))}\n" for command in commands)
    ran = subprocess.run(
        (sys.executable, "-P", "-c", _RUN), input=lines, stdout=subprocess.PIPE, text=True, check=True,
        env={**os.environ, **folders, "PYTHONPATH": str(tree), "NO_COLOR": "1"},
    )  # fmt: skip
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    return [(code, json.loads(out) if out else None, err) for code, out, err in found]


def _differences(old: object, new: object, path: str = "") -> Iterator[str]:
    """Yield where two answers differ, and how."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from _differences(old.get(key), new.get(key), f"{path}.{key}")
    elif isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)) and len(old) == len(new):
        for index, pair in enumerate(zip(old, new, strict=True)):
            yield from _differences(*pair, f"{path}[{index}]")
    elif old != new:
        yield f"{path}: {str(old)[:80]!r} is now {str(new)[:80]!r}"


if __name__ == "__main__":
    sys.exit(main())
