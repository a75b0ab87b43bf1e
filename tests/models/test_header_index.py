"""The index of local headers, and when a file is read again."""

import os
from pathlib import Path

import msgspec
import pytest

from ggbench.errors import BadFile
from ggbench.models.local_files import HeaderFacts, HeaderIndex, read_facts
from tests.fakes.model_stores import gguf_bytes

QWEN2 = HeaderFacts("qwen2", 32768, None, False, None)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes())
    return path


def ask(index: Path, model: Path) -> HeaderFacts:
    opened = HeaderIndex(index)
    try:
        return opened.facts(model, model.stat())
    finally:
        opened.save()


def rewrite(model: Path, content: bytes, *, mtime_ns: int) -> None:
    model.write_bytes(content)
    os.utime(model, ns=(mtime_ns, mtime_ns))


def test_a_file_of_the_same_size_and_date_is_not_opened_again(tmp_path: Path, model: Path) -> None:
    dated = model.stat().st_mtime_ns
    assert ask(tmp_path / "index", model) == QWEN2
    rewrite(model, b"\0" * model.stat().st_size, mtime_ns=dated)
    assert ask(tmp_path / "index", model) == QWEN2


@pytest.mark.parametrize(("grows", "older_ns"), [(32, 0), (0, 1_000_000)])
def test_another_size_or_date_is_another_file(tmp_path: Path, model: Path, grows: int, older_ns: int) -> None:
    dated = model.stat().st_mtime_ns
    ask(tmp_path / "index", model)
    rewrite(model, gguf_bytes("llama") + bytes(grows), mtime_ns=dated - older_ns)
    assert ask(tmp_path / "index", model).architecture == "llama"


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: b"", lambda raw: raw[:-5], lambda raw: b"\xff" + raw, lambda raw: b"[" * 100_000,
        lambda raw: raw.replace(b'"version":1', b'"version":999'), lambda raw: raw.replace(b"32768", b'"many"'),
        lambda raw: raw.replace(b'"files"', b'"elif"'),
    ],
)  # fmt: skip
def test_a_damaged_or_newer_index_is_rebuilt(tmp_path: Path, model: Path, damage: object) -> None:
    assert callable(damage)
    index = tmp_path / "index"
    ask(index, model)
    index.write_bytes(damage(index.read_bytes()))
    assert ask(index, model) == QWEN2
    assert msgspec.json.decode(index.read_bytes())["version"] == 1


@pytest.mark.parametrize("kind", ["fifo", "folder", "missing", "loop"])
def test_a_special_file_is_an_error_without_waiting(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "m.gguf"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    with pytest.raises(BadFile):
        read_facts(path)
