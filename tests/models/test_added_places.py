"""Folders and files added by hand: which texts are paths, what is remembered, and what is refused."""

import os
from pathlib import Path

import pytest

from ggbench import paths
from ggbench.errors import BadFile
from ggbench.models.added_places import (
    add_place,
    added_models,
    are_places_damaged,
    forget_place,
    is_local,
    remembered_places,
    typed_path,
)
from tests.fakes.model_stores import gguf_bytes


def put(path: Path, content: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content or gguf_bytes())
    return path


def test_a_path_is_told_from_a_name(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths are known by their beginning, else by whether they exist; a bare word is a name even if a folder has it."""
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "org/name/m-q8_0.gguf")
    put(tmp_path / "with space/m.gguf")
    for text, path in {
        "/models": Path("/models"),
        "~/models": home / "models",
        "~": home,
        "./x": Path("x"),
        "../x": Path("../x"),
        "org/name": Path("org/name"),
        "  /models/  ": Path("/models"),
        "'/with space/m.gguf'": Path("/with space/m.gguf"),
        r"/with\ space/m.gguf": Path("/with space/m.gguf"),
        f"{tmp_path}/with space": tmp_path / "with space",
        "file:///with%20space/m.gguf": Path("/with space/m.gguf"),
    }.items():
        assert typed_path(text) == path, text
    for text in ("org", "other/name", "qwen 0.5b", "m.gguf", "", "  ", "it's", "a\0b", "x" * 5000):
        assert typed_path(text) is None, text
    assert is_local(" org ")
    assert not is_local("nothing")


def test_an_added_folder_is_remembered_until_it_is_removed(tmp_path: Path) -> None:
    files = [put(tmp_path / "models/a-q8_0.gguf"), put(tmp_path / "models/deep/down/b-q4_0.gguf")]
    found = add_place(tmp_path / "models")
    assert [model.name for model in found] == ["a-q8_0", "b-q4_0"]
    assert {model.place for model in found} == {tmp_path / "models"}
    assert added_models() == found
    assert add_place(Path(f"{tmp_path}/models/../models/")) == found
    assert remembered_places() == (tmp_path / "models",)
    forget_place(tmp_path / "models")
    assert added_models() == ()
    assert all(file.exists() for file in files)


def test_no_file_is_listed_twice(tmp_path: Path) -> None:
    inner = put(tmp_path / "models/deep/a-q8_0.gguf")
    put(tmp_path / "models/b-q8_0.gguf")
    for place in (inner.parent, inner, tmp_path / "models"):
        add_place(place)
    assert remembered_places() == (inner.parent, tmp_path / "models")
    assert [model.name for model in added_models()] == ["a-q8_0", "b-q8_0"]


def test_what_cannot_be_measured_is_refused_and_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("no model")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/m-q8_0.gguf").write_bytes(b"GGUF")
    put(tmp_path / "projector/mmproj-f16.gguf", gguf_bytes("clip"))
    os.mkfifo(tmp_path / "pipe")
    put(tmp_path / "huge/1/2/m.gguf")
    monkeypatch.setattr("ggbench.models.local_files.MAX_FOLDERS", 2)
    for name, reason in {
        "nowhere": "no such file or folder",
        "notes.txt/below": "no such file or folder",
        "empty": "no GGUF file",
        "projector": "no GGUF file",
        "notes.txt": "notes.txt",
        "broken": "broken: ",
        "pipe": "neither a file nor a folder",
        "huge": "too many folders",
        "x" * 300: "cannot be read",
    }.items():
        with pytest.raises(BadFile) as caught:
            add_place(tmp_path / name)
        assert reason in caught.value.message
        assert "\n" not in caught.value.message
        assert caught.value.hint
    assert remembered_places() == ()
    assert not paths.added_places_file().exists()


def test_a_place_that_is_gone_is_listed_with_why(tmp_path: Path) -> None:
    """It may be on an unmounted disk, so it stays until the user removes it."""
    file = put(tmp_path / "models/a-q8_0.gguf")
    other = put(tmp_path / "b-q8_0.gguf")
    add_place(file.parent)
    add_place(other)
    file.unlink()
    assert [(model.name, model.reason) for model in added_models()][:1] == [
        (str(file.parent), "it no longer has a GGUF model")
    ]
    file.parent.rmdir()
    gone, there = added_models()
    assert "no such file or folder" in gone.reason
    assert (gone.place, gone.paths, there.place) == (file.parent, (), other)


def test_a_damaged_list_is_kept_aside_when_a_place_is_added(tmp_path: Path) -> None:
    place = put(tmp_path / "models/a-q8_0.gguf").parent
    file = paths.added_places_file()
    file.parent.mkdir(parents=True)
    for damaged in (b'{"places": ["/models", "/more', b'{"places": ["\xff"]}'):
        file.write_bytes(damaged)
        assert (remembered_places(), are_places_damaged()) == ((), True)
        add_place(place)
        assert (remembered_places(), are_places_damaged()) == ((place,), False)
        assert damaged in [kept.read_bytes() for kept in file.parent.glob("places.broken*.json")]
