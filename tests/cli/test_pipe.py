"""Commands whose reader ends first, as `| head` does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ggbench.errors import ExitCode


@pytest.mark.parametrize(
    "args",
    [
        [], ["--help"], ["--version"], ["decode", "--help"], ["models"], ["models", "--json"], ["published"],
        ["published", "--json"], ["limits", "qwen1.5-0.5b", "--gpu", "rtx-4090"], ["inspect", "TWIN"],
        ["inspect", "TWIN", "--json"],
    ],
    ids=" ".join,
)  # fmt: skip
@pytest.mark.parametrize("streams", ["stdout", "both"])
def test_a_reader_that_ends_first_is_no_error(args: list[str], streams: str, tiny_twin: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "ggbench", *(str(tiny_twin) if arg == "TWIN" else arg for arg in args)],
        stdout=writer,
        stderr=writer if streams == "both" else subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert ran.returncode == ExitCode.PIPE_CLOSED
    assert not ran.stderr


def test_an_error_that_nobody_reads_is_quiet() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ran = subprocess.run([sys.executable, "-P", "-m", "ggbench", "nope"], stdout=writer, stderr=writer, check=False)
    os.close(writer)
    assert ran.returncode == ExitCode.PIPE_CLOSED


@pytest.mark.parametrize("args", [["models"], ["models", "--json"], ["published", "--csv"], ["--help"]], ids=" ".join)
def test_a_full_disk_behind_stdout_is_an_error_in_two_lines(args: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-P", "-m", "ggbench", *args], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ran.returncode == ExitCode.DOES_NOT_FIT
    assert ran.stderr.splitlines() == [
        "Error: cannot write: No space left on device",
        "Hint: free some space, or write to another disk",
    ]
