"""The bisection over builds, with programs that load no model and are as slow as they are told."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.llama_server import install

_ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slow_from", "rounds", "said"),
    [(2, 2, "the first slower build is 3, "), (3, 1, "no build is slower than the first")],
)
def test_it_ends_in_the_first_slower_build(
    slow_from: int, rounds: int, said: str, tiny_twin: Path, tmp_path: Path
) -> None:
    """One round has no interval, so that two follow it."""
    program = install(tmp_path)
    builds = [f"{program} --step-ns {20_000_000 if index >= slow_from else 10_000_000 + index}" for index in range(3)]
    words = [str(tiny_twin), *builds, "--rounds", str(rounds), "--bench", "-n 60 -t 1"]
    command = [sys.executable, "-P", "scripts/bisect_builds.py", *words]
    ran = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert said in ran.stdout.splitlines()[-1]
