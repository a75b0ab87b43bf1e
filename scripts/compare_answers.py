"""The comparison behind scripts/compare_answers: `plan` and `pick` of every model of the catalog, here and at a commit.

All commands of a tree run in one process, with a data and a cache folder of their own, so no stored run counts. The
machines are described, so their free memory is always the same.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
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
    parser.add_argument(
        "--machine", action="append", help="options, e.g. '--gpu rtx-3060'; default: four machines"
    )
    asked = parser.parse_args()
    models = asked.models or [model.id for model in load_catalog().models]
    commands = [
        f"{command} {model} --json {machine}"
        for machine in asked.machine or MACHINES
        for model in models
        for command in ("plan", "pick")
    ]
    codes: collections.Counter[int] = collections.Counter()
    n_different = 0
    with contextlib.ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="ggbench-compare-answers-")))
        there, here = (
            opened.enter_context(_started(tree, folder / f"home-{number}"))
            for number, tree in enumerate((checked_out(asked.commit, folder), ROOT))
        )
        for command in commands:
            for process in (there, here):
                print(json.dumps(shlex.split(command)), file=process.stdin, flush=True)
            old, new = _answer(there), _answer(here)
            codes[new[0]] += 1
            if found := list(_differences(old, new)):
                n_different += 1
                more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
                print("\n  ".join((f"ggbench {command}", *found[:_SHOWN], *more)), flush=True)
            print(f"\r{codes.total()} of {len(commands)}", end="", file=sys.stderr, flush=True)
    by_code = ", ".join(f"{count} with exit code {code}" for code, count in sorted(codes.items()))
    print(f"\n{n_different} of {len(commands)} answers differ from those at {asked.commit}; here {by_code}")
    return 1 if n_different else 0


def _started(tree: Path, home: Path) -> subprocess.Popen[str]:
    folders = {f"XDG_{name}_HOME": str(home / name.lower()) for name in ("DATA", "CACHE", "CONFIG")}
    home.mkdir()
    return subprocess.Popen(
        (sys.executable, "-P", "-c", _RUN), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, **folders, "PYTHONPATH": str(tree), "NO_COLOR": "1"},
    )  # fmt: skip


def _answer(process: subprocess.Popen[str]) -> tuple[int, object, str]:
    """Return exit code, document and stderr of the command that a process was given."""
    assert process.stdout is not None
    code, out, err = json.loads(process.stdout.readline())
    return code, json.loads(out) if out else None, err


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
