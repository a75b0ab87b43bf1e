"""Files that are refused, and standard input."""

import io
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from ggbench.errors import BadFile
from ggbench.formats.imported_run import STDIN
from ggbench.formats.importing import read_runs
from tests.formats.conftest import PEERS


def refusal(path: Path) -> str:
    with pytest.raises(BadFile) as caught:
        list(read_runs(path))
    assert caught.value.hint
    return caught.value.message


def test_a_file_of_a_gigabyte_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    path.touch()
    os.truncate(path, 1 << 30)

    assert refusal(path) == "huge.json is larger than 64.0 MiB"


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    pipe, empty = tmp_path / "pipe", tmp_path / "empty"
    os.mkfifo(pipe)
    empty.write_text(" \n")

    for path in (tmp_path, tmp_path / "missing.json", pipe):
        assert "is not a file" in refusal(path)
    assert "empty is empty" in refusal(empty)


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    content = io.BytesIO((PEERS / "llama-bench.json").read_bytes())
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=content))

    assert len(list(read_runs(STDIN))) == 2


@pytest.mark.parametrize("name", ["llama-bench.jsonl", "llama-bench.json"])
def test_a_byte_order_mark_and_windows_lines_do_no_harm(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"\xef\xbb\xbf" + (PEERS / name).read_bytes().replace(b"\n", b"\r\n"))
    assert len(list(read_runs(path))) == 2
