"""Model folders of other programs, located from the environment."""

import json
from pathlib import Path

import pytest

from ggbench.models import model_stores
from ggbench.models.model_stores import find_model_stores


@pytest.fixture(autouse=True)
def no_system_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_stores, "SYSTEM_OLLAMA", ())


def make(*folders: Path) -> None:
    for folder in folders:
        folder.mkdir(parents=True)


def found(environment: dict[str, str], platform: str = "linux") -> dict[Path, tuple[str, str]]:
    return {store.root: (store.name, store.layout) for store in find_model_stores(environment, platform)}


def test_default_folders_of_every_program(tmp_path: Path) -> None:
    usual = {
        tmp_path / ".cache/huggingface/hub": ("Hugging Face", "hub"),
        tmp_path / ".cache/llama.cpp": ("llama.cpp", "folder"),
        tmp_path / ".lmstudio/models": ("LM Studio", "folder"),
        tmp_path / ".cache/lm-studio/models": ("LM Studio", "folder"),
        tmp_path / ".ollama/models": ("Ollama", "ollama"),
    }
    assert found({"HOME": str(tmp_path)}) == {}
    make(*usual)
    assert found({"HOME": str(tmp_path)}) == usual


def test_llama_cpp_has_another_cache_on_macos(tmp_path: Path) -> None:
    make(tmp_path / "Library/Caches/llama.cpp")
    assert found({"HOME": str(tmp_path)}, "darwin") == {tmp_path / "Library/Caches/llama.cpp": ("llama.cpp", "folder")}


@pytest.mark.parametrize(
    ("variable", "folder"),
    [
        ("HF_HUB_CACHE", "x"), ("HUGGINGFACE_HUB_CACHE", "x"), ("HF_HOME", "x/hub"),
        ("XDG_CACHE_HOME", "x/huggingface/hub"),
    ],
)  # fmt: skip
def test_each_variable_moves_the_hugging_face_cache(tmp_path: Path, variable: str, folder: str) -> None:
    make(tmp_path / folder, tmp_path / ".cache/huggingface/hub")
    moved = find_model_stores({"HOME": str(tmp_path), variable: str(tmp_path / "x")}, "linux")
    assert [store.root for store in moved if store.name == "Hugging Face"] == [tmp_path / folder]
    usual = find_model_stores({"HOME": str(tmp_path), variable: ""}, "linux")
    assert [store.root for store in usual if store.finds_repos] == [tmp_path / ".cache/huggingface/hub"]


def test_llama_cache_is_read_in_both_of_its_layouts(tmp_path: Path) -> None:
    make(tmp_path / "x")
    here = find_model_stores({"HOME": str(tmp_path), "LLAMA_CACHE": "~/x"}, "linux")
    assert [(store.layout, store.finds_repos) for store in here] == [("hub", False), ("folder", False)]


def test_ollama_models_comes_before_the_default(tmp_path: Path) -> None:
    make(tmp_path / "x", tmp_path / ".ollama/models")
    assert list(found({"HOME": str(tmp_path), "OLLAMA_MODELS": str(tmp_path / "x")})) == [
        tmp_path / "x",
        tmp_path / ".ollama/models",
    ]


def test_lm_studio_may_have_moved_its_home_and_its_models(tmp_path: Path) -> None:
    make(tmp_path / "home/models", tmp_path / "big disk")
    (tmp_path / ".lmstudio-home-pointer").write_text(f"{tmp_path / 'home'}\n")
    (tmp_path / "home/settings.json").write_text(json.dumps({"downloadsFolder": str(tmp_path / "big disk")}))
    assert list(found({"HOME": str(tmp_path)})) == [tmp_path / "big disk", tmp_path / "home/models"]


@pytest.mark.parametrize(
    "settings", ["{", "[" * 100_000, '{"downloadsFolder": 7}', '{"downloadsFolder": "a\\u0000b"}', "7"]
)
def test_invalid_lm_studio_settings_are_ignored(tmp_path: Path, settings: str) -> None:
    make(tmp_path / ".lmstudio/models")
    (tmp_path / ".lmstudio/settings.json").write_text(settings)
    (tmp_path / ".lmstudio-home-pointer").write_bytes(b"\xff\x00")
    assert list(found({"HOME": str(tmp_path)})) == [tmp_path / ".lmstudio/models"]
