"""Streams that are closed, full or without UTF-8, and readers that end first, in real processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ggbench.errors import ExitCode
from ggbench.runs.store.database import Store
from tests.fakes.measured import put_run, start


def ggbench(environ: dict[str, str], *words: str) -> subprocess.CompletedProcess[bytes]:
    given = {name: value for name, value in (os.environ | environ).items() if value}
    return subprocess.run([sys.executable, "-P", "-m", "ggbench", *words], capture_output=True, env=given, check=False)


@pytest.fixture
def stored(home: Path) -> int:
    with Store.open() as store:
        return put_run(store, start("通义", "q4_k_m"), n_gen=600)


def test_characters_that_an_encoding_lacks_are_escaped(stored: int) -> None:
    environ = {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    ran = ggbench(environ, "results", "show", str(stored), "--plot")
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert b"\xb7" in ran.stdout
    assert b"\\u901a\\u4e49" in ran.stdout
    document = ggbench(environ, "results", "show", str(stored), "--json")
    assert json.loads(document.stdout)["model"] == "通义"


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_quiet(stored: int, closed: str) -> None:
    """No other file gets its descriptor, so nothing is printed into the results file."""
    command = f"{sys.executable} -P -m ggbench results {closed}"
    ran = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert bool(ran.stdout) is (">&-" not in closed.replace("2>&-", ""))
    with Store.open() as store:
        assert len(store.list_runs()) == 1


@pytest.mark.parametrize(
    ("line", "streams"), [("", "both"), ("decode --help", "both"), ("models --json", "both"), ("published", "stdout")]
)
def test_a_reader_that_ends_first_is_no_error(line: str, streams: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "ggbench", *line.split()],
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


@pytest.mark.parametrize("args", [["models", "--json"], ["published", "--json"]], ids=" ".join)
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
