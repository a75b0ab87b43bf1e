"""Texts to score."""

import hashlib
from pathlib import Path

import pytest

from ggbench.errors import BadFile, UsageError
from ggbench.experiments.quality.texts import find_text, read_text


def test_a_file_is_named_and_hashed(tmp_path: Path) -> None:
    path = tmp_path / "prose.txt"
    path.write_bytes("Grüße\r\n".encode())
    source, text = find_text(path)
    assert (source.name, source.n_bytes, source.path) == ("prose.txt", 9, str(path))
    assert source.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert text == "Grüße\r"
    assert read_text(source) == text


@pytest.mark.parametrize(
    ("content", "text"), [("one\n", "one"), ("one\n\n", "one\n"), ("one", "one"), ("\none", "\none")]
)
def test_one_newline_at_the_end_is_not_scored(tmp_path: Path, content: str, text: str) -> None:
    path = tmp_path / "prose.txt"
    path.write_text(content)
    assert find_text(path)[1] == text


def test_a_text_that_has_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "prose.txt"
    path.write_text("one")
    source, _ = find_text(path)
    path.write_text("two")
    with pytest.raises(UsageError, match="has changed"):
        read_text(source)


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (b"\xff\xfe", BadFile, "not UTF-8: byte 0 is 0xff"),
        (b" \n", UsageError, "is empty"),
        (b"", UsageError, "is empty"),
    ],
)
def test_a_file_that_is_no_text_is_named(tmp_path: Path, content: bytes, error: type[Exception], message: str) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    with pytest.raises(error, match=message):
        find_text(path)
