"""All models on this disk, from every store."""

import os
from pathlib import Path

import pytest

from ggbench import paths
from ggbench.errors import BadFile
from ggbench.models import local_files
from ggbench.models.catalog import load_catalog
from ggbench.models.disk import LocalModel, find_local_models, models_in_place
from ggbench.models.local_files import read_facts
from ggbench.models.model_stores import ModelStore
from ggbench.models.reference import parse_model
from ggbench.models.targets import resolve_one
from tests.fakes.model_stores import COMMIT, gguf_bytes, hide_model_stores, put_in_hub_cache, put_in_ollama

no_system_folders = pytest.fixture(autouse=True)(hide_model_stores)


@pytest.fixture
def hub_cache(home: Path) -> Path:
    return home / "cache/huggingface/hub"


def put(path: Path, content: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content or gguf_bytes())
    return path


def arguments_of(models: tuple[LocalModel, ...]) -> list[tuple[str, ...]]:
    return [model.arguments for model in models]


def test_models_of_all_stores_have_arguments(home: Path, hub_cache: Path) -> None:
    put_in_hub_cache(hub_cache, "Qwen/Qwen2.5-7B-GGUF", "qwen2.5-7b-q8_0.gguf", gguf_bytes())
    put(home / "cache/llama.cpp/org_repo_m-q4_0.gguf")
    put(home / ".lmstudio/models/publisher/Repo-Q6_K-GGUF/model.gguf")
    blob = put_in_ollama(home / ".ollama/models", gguf_bytes("llama", 131072), file_type="Q4_K_M")
    found = find_local_models()
    assert [(model.store, model.name, model.quant, model.architecture, model.n_ctx_train) for model in found] == [
        ("Hugging Face", "Qwen/Qwen2.5-7B-GGUF", "q8_0", "qwen2", 32768),
        ("llama.cpp", "org_repo_m-q4_0", "q4_0", "qwen2", 32768),
        ("LM Studio", "model", "q6_k", "qwen2", 32768),
        ("Ollama", "llama3.2:1b", "q4_k_m", "llama", 131072),
    ]
    assert arguments_of(found) == [
        ("Qwen/Qwen2.5-7B-GGUF", "q8_0"), ("~/cache/llama.cpp/org_repo_m-q4_0.gguf",),
        ("~/.lmstudio/models/publisher/Repo-Q6_K-GGUF/model.gguf",), (f"~/.ollama/models/blobs/{blob.name}",),
    ]  # fmt: skip
    assert all(not model.reason and model.file_bytes == model.paths[0].stat().st_size for model in found)


def test_arguments_select_the_same_file(home: Path, hub_cache: Path) -> None:
    put_in_hub_cache(hub_cache, "org/repo", "m-q8_0.gguf", gguf_bytes())
    put(home / ".lmstudio/models/it's me/a b-q4_0.gguf")
    put_in_ollama(home / ".ollama/models", gguf_bytes("llama"))
    found = find_local_models()
    targets = [resolve_one(parse_model(*model.arguments)) for model in found if model.store != "Hugging Face"]
    assert [target.path for target in targets] == [model.paths[0] for model in found if model.store != "Hugging Face"]
    assert len(targets) == 2


def test_shards_are_one_model_and_a_missing_one_is_reported(home: Path) -> None:
    folder = home / ".lmstudio/models/publisher/repo"
    shards = [put(folder / f"m-q8_0-0000{number}-of-00002.gguf") for number in (1, 2)]
    put(folder / "n-q8_0-00002-of-00003.gguf")
    put(folder / "mmproj-m-f16.gguf", gguf_bytes("clip"))
    put(folder / "._m-q8_0.gguf")
    whole, broken = find_local_models()
    assert (whole.paths, whole.reason) == (tuple(shards), "")
    assert broken.reason == "2 of its 3 shards are missing"


def test_one_file_by_several_names_is_listed_once(home: Path, hub_cache: Path) -> None:
    link = put_in_hub_cache(hub_cache, "org/repo", "m-q8_0.gguf", gguf_bytes())
    put_in_hub_cache(hub_cache, "org/repo", "m-q8_0.gguf", gguf_bytes(), commit="b" * 40)
    folder = home / ".lmstudio/models/org/repo"
    folder.mkdir(parents=True)
    (folder / "m-q8_0.gguf").symlink_to(link)
    (folder / "again-q8_0.gguf").hardlink_to(link.resolve())
    (model,) = find_local_models()
    assert model.arguments == ("org/repo", "q8_0")


def test_twins_are_listed_by_catalog_id() -> None:
    model = load_catalog().model("qwen1.5-0.5b")
    raw = gguf_bytes(more={"ggbench.twin": True, "ggbench.twin.source": f"catalog:{model.id}"})
    put(paths.twins_dir() / f"{model.id}-q8_0.gguf", raw)
    put(paths.twins_dir() / f"{model.id}-renamed-q8_0.gguf", raw + bytes(32))
    published = {"ggbench.twin": True, "ggbench.twin.source": "org/repo at abc"}
    put(paths.twins_dir() / "org-repo-q8_0.gguf", gguf_bytes(more=published))
    found = find_local_models()
    assert all(model.is_twin for model in found)
    assert [model.arguments for model in found if not model.is_named_by_path] == [("twin:qwen1.5-0.5b", "q8_0")]


def test_broken_files_are_listed_with_the_reason(home: Path) -> None:
    folder = home / ".lmstudio/models/a/b"
    put(folder / "red\x1b[31m-q8_0.gguf", b"GGUF")
    put(folder / "byte\udcff-q4_0.gguf", b"<html>not found</html>")
    put(folder / "whole-q2_k.gguf")
    found = find_local_models()
    assert [bool(model.reason) for model in found] == [True, True, False]
    assert all(model.name.isprintable() and model.reason.isprintable() for model in found)


def test_symlink_loops_end(tmp_path: Path) -> None:
    put(tmp_path / "a/m-q8_0.gguf")
    (tmp_path / "a/up").symlink_to(tmp_path)
    (tmp_path / "a/self").symlink_to(tmp_path / "a/self")
    (tmp_path / "a/gone-q8_0.gguf").symlink_to(tmp_path / "nowhere")
    assert [model.name for model in models_in_place(tmp_path)] == ["m-q8_0"]


def test_an_unreadable_store_is_reported(tmp_path: Path) -> None:
    put(tmp_path / "there/m-q8_0.gguf")
    gone = [ModelStore("Ollama", tmp_path / "x", "ollama"), ModelStore("Hugging Face", tmp_path / "x", "hub")]
    found = find_local_models((tmp_path / "there",), gone)
    assert [(model.store, bool(model.reason)) for model in found] == [
        ("Ollama", True),
        ("Hugging Face", True),
        ("folder", False),
    ]


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


def test_a_place_is_searched_to_a_depth_and_a_number_of_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Publisher, repo and quant are within; an entry says that there is more."""
    put(tmp_path / "publisher/repo/q8_0/deep.gguf")
    put(tmp_path / "1/2/3/4/5/6/too-deep.gguf")
    assert [model.name for model in models_in_place(tmp_path)] == ["deep"]
    monkeypatch.setattr(local_files, "MAX_FOLDERS", 3)
    (said,) = (model for model in models_in_place(tmp_path) if model.reason)
    assert "folders" in said.reason and said.paths == ()


def test_what_a_repos_name_and_a_quant_do_not_select_is_named_by_its_path(hub_cache: Path) -> None:
    """A file of a commit that is not the newest, and two of one quant; a folder may have the quant."""
    older = put_in_hub_cache(hub_cache, "org/repo", "m-q6_k.gguf", gguf_bytes(n_ctx_train=1), commit="f" * 40)
    for number, name in enumerate(("m-q6_k.gguf", "a-q8_0.gguf", "b-q8_0.gguf", "Q4_K_M/c.gguf"), start=2):
        put_in_hub_cache(hub_cache, "org/repo", name, gguf_bytes(n_ctx_train=number))
    (hub_cache / "models--org--repo/refs").mkdir()
    (hub_cache / "models--org--repo/refs/main").write_text(COMMIT)
    found = {model.n_ctx_train: model for model in find_local_models()}
    assert found[1].paths == (older,)
    assert {number for number, model in found.items() if model.is_named_by_path} == {1, 3, 4}
    assert (found[2].arguments, found[5].arguments) == (("org/repo", "q6_k"), ("org/repo", "q4_k_m"))


def test_a_place_may_be_a_file_and_a_missing_one_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path / "-m-q8_0.gguf")
    assert [model.quant for model in models_in_place(path)] == ["q8_0"]
    monkeypatch.chdir(tmp_path)
    assert arguments_of(models_in_place(Path())) == [("./-m-q8_0.gguf",)]
    for name in ("nowhere", "-m-q8_0.gguf/below", "x" * 300):
        with pytest.raises(BadFile):
            models_in_place(tmp_path / name)
