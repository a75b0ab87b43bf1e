"""Streams that are closed, or have no UTF-8: real processes, since Python chooses the encoding as it starts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ggbench.runs.store.database import Store
from tests.fakes.measured import put_run, start

ASCII = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
LATIN_1 = {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
C_LOCALE = {"LC_ALL": "C", "LANG": "C", "PYTHONIOENCODING": "", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""Without what Python does about it by itself."""


def ggbench(environ: dict[str, str], *words: str) -> subprocess.CompletedProcess[bytes]:
    given = {name: value for name, value in (os.environ | environ).items() if value}
    return subprocess.run([sys.executable, "-P", "-m", "ggbench", *words], capture_output=True, env=given, check=False)


@pytest.fixture
def stored(home: Path) -> int:
    with Store.open() as store:
        return put_run(store, start("通义", "q4_k_m"), n_gen=600)


@pytest.mark.parametrize("environ", [ASCII, C_LOCALE], ids=["ascii", "C"])
def test_ascii_has_every_line(stored: int, environ: dict[str, str]) -> None:
    ran = ggbench(environ, "results", "show", str(stored), "--plot")
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ran.stdout.isascii()
    assert b"\\u901a\\u4e49" in ran.stdout
    assert b"+-" in ran.stdout


def test_an_encoding_keeps_what_it_has(stored: int) -> None:
    ran = ggbench(LATIN_1, "results", "show", str(stored))
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert b"\xb1" in ran.stdout
    assert b"\\u901a\\u4e49" in ran.stdout


def test_an_error_is_spelled(home: Path) -> None:
    ran = ggbench(ASCII, "decode", "…no-such…")
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert ran.stderr.startswith(b"Error: no model named '~no-such~'")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_quiet(stored: int, closed: str) -> None:
    """No other file gets its descriptor, so nothing is printed into the results file."""
    command = f"{sys.executable} -P -m ggbench results list {closed}"
    ran = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert bool(ran.stdout) is (">&-" not in closed.replace("2>&-", ""))
    with Store.open() as store:
        assert len(store.list_runs()) == 1
