"""Commands that draw their progress, each in a terminal of its own, from the first refresh of the bar to the end."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.llama

COLUMNS, LINES = 100, 30
MEASURED = {
    "decode": ("-n", "200", "--plot"),
    "maxctx": ("--memory-limit", "200MiB", "--no-prove"),
    "bench": ("-n", "50", "--plot"),
    "forecast": (),
}


def in_terminal(words: list[str], env: dict[str, str]) -> tuple[int, str]:
    """Run ggbench with all its streams on a terminal; return its exit code and all that it drew."""
    ours, theirs = pty.openpty()
    size = {"COLUMNS": str(COLUMNS), "LINES": str(LINES), "TERM": "xterm-256color"}
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "ggbench", *words], stdin=theirs, stdout=theirs, stderr=theirs, env=env | size
    )
    os.close(theirs)
    drawn = b""
    try:
        while chunk := os.read(ours, 1 << 16):
            drawn += chunk
    except OSError:  # the last process with the terminal has ended
        pass
    finally:
        os.close(ours)
    return process.wait(), drawn.decode(errors="replace")


def check(words: list[str]) -> None:
    env = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "GGBENCH_DEBUG")}
    code, drawn = in_terminal(words, env)
    assert "Traceback" not in drawn
    assert (code, drawn) == (0, drawn)
    assert "\x1b[" in drawn, "something was drawn over"


@pytest.mark.parametrize("name", MEASURED)
def test_a_command_draws_its_progress_without_an_error(name: str, tiny_twin: Path) -> None:
    check([name, str(tiny_twin), *MEASURED[name]])


def test_a_download_is_drawn_without_an_error(repo: str) -> None:
    check(["pull", repo, "q8_0"])
