"""Model folders of other programs, located from the environment."""

import json
from pathlib import Path
from unittest.mock import patch

import pytest

from ggbench.models import model_stores
from ggbench.models.model_stores import ModelStore, OllamaModel, find_model_stores, ollama_models
from tests.fakes.model_stores import ollama_manifest, put_blob, put_in_ollama, put_manifest


@pytest.fixture(autouse=True)
def no_system_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_stores, "SYSTEM_OLLAMA", ())


def make(*folders: Path) -> None:
    for folder in folders:
        folder.mkdir(parents=True)


def stores(environment: dict[str, str], platform: str = "linux") -> tuple[ModelStore, ...]:
    with patch.dict("os.environ", environment, clear=True), patch("sys.platform", platform):
        return find_model_stores()


def found(environment: dict[str, str], platform: str = "linux") -> dict[Path, tuple[str, str]]:
    return {store.root: (store.name, store.layout) for store in stores(environment, platform)}


def test_default_folders_of_every_program(tmp_path: Path) -> None:
    usual = {
        tmp_path / ".cache/huggingface/hub": ("Hugging Face", "hub"),
        tmp_path / ".cache/llama.cpp": ("llama.cpp", "folder"),
        tmp_path / ".lmstudio/models": ("LM Studio", "folder"),
        tmp_path / ".cache/lm-studio/models": ("LM Studio", "folder"),
        tmp_path / ".ollama/models": ("Ollama", "ollama"),
        tmp_path / "models": ("folder", "folder"),
    }
    assert found({"HOME": str(tmp_path)}) == {}
    make(*usual)
    assert found({"HOME": str(tmp_path)}) == usual


@pytest.mark.parametrize(
    ("variable", "folder"),
    [
        ("HF_HUB_CACHE", "x"), ("HUGGINGFACE_HUB_CACHE", "x"), ("HF_HOME", "x/hub"),
        ("XDG_CACHE_HOME", "x/huggingface/hub"),
    ],
)  # fmt: skip
def test_each_variable_moves_the_hugging_face_cache(tmp_path: Path, variable: str, folder: str) -> None:
    make(tmp_path / folder, tmp_path / ".cache/huggingface/hub")
    moved = stores({"HOME": str(tmp_path), variable: str(tmp_path / "x")})
    assert [store.root for store in moved if store.name == "Hugging Face"] == [tmp_path / folder]
    usual = stores({"HOME": str(tmp_path), variable: ""})
    assert [store.root for store in usual if store.finds_repos] == [tmp_path / ".cache/huggingface/hub"]


def test_llama_cache_is_read_in_both_of_its_layouts(tmp_path: Path) -> None:
    make(tmp_path / "x")
    here = stores({"HOME": str(tmp_path), "LLAMA_CACHE": "~/x"})
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


LIBRARY = "manifests/registry.ollama.ai/library"


def test_a_tag_resolves_to_the_blob_of_its_weights(tmp_path: Path) -> None:
    blob = put_in_ollama(tmp_path, b"weights", file_type="Q4_K_M")
    assert list(ollama_models(tmp_path)) == [OllamaModel("llama3.2:1b", blob, "q4_k_m")]


def test_names_are_accepted_by_ollama_run(tmp_path: Path) -> None:
    raw = ollama_manifest(put_blob(tmp_path, b"weights"))
    put_manifest(tmp_path, f"{LIBRARY}/qwen2.5/7b-instruct-q8_0", raw)
    put_manifest(tmp_path, "manifests/registry.ollama.ai/someone/tuned/latest", raw)
    put_manifest(tmp_path, "manifests/hf.co/org/repo/Q4_K_M", raw)
    put_manifest(tmp_path, "manifests-v2/localhost%3A5000/a/b/c", raw)
    put_manifest(tmp_path, f"{LIBRARY}/qwen2.5/.being-written", raw)
    put_manifest(tmp_path, f"{LIBRARY}/too-high", raw)
    assert {(model.name, model.quant) for model in ollama_models(tmp_path)} == {
        ("qwen2.5:7b-instruct-q8_0", "q8_0"), ("someone/tuned:latest", None), ("hf.co/org/repo:Q4_K_M", "q4_k_m"),
        ("localhost:5000/a/b:c", None),
    }  # fmt: skip


def test_a_manifest_may_be_a_list_of_builds(tmp_path: Path) -> None:
    builds = [put_blob(tmp_path, ollama_manifest(put_blob(tmp_path, weights))) for weights in (b"ggml", b"llamacpp")]
    listed = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.ollama.manifest.list.v2+json",
        "manifests": [{"digest": digest, "runner": "x"} for digest in (*builds, "sha256:" + "0" * 64, "garbage")],
    }
    put_manifest(tmp_path, "manifests-v2/ollama.com/library/llama3.2/1b", json.dumps(listed).encode())
    put_in_ollama(tmp_path, b"older")
    found = list(ollama_models(tmp_path))
    assert [model.name for model in found] == ["llama3.2:1b"] * 2
    assert [model.blob and model.blob.read_bytes() for model in found] == [b"ggml", b"llamacpp"]


@pytest.mark.parametrize(
    "digest",
    ["sha256:../../../../etc/passwd", "sha256:" + "a" * 63, "/etc/passwd", "md5:" + "a" * 64, "sha256:" + "g" * 64],
)
def test_an_invalid_digest_is_rejected(tmp_path: Path, digest: str) -> None:
    put_manifest(tmp_path, f"{LIBRARY}/evil/latest", ollama_manifest(digest))
    (model,) = ollama_models(tmp_path)
    assert model.blob is None
    assert "invalid blob digest" in model.reason


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"{", b"\xff\xfe", b'{"config": {"digest": "\xff"}}', b"[" * 100_000, b"[]", b'{"layers": 7}',
        b'{"layers": [{"digest": 7}]}', b" " * (2 << 20),
    ],
    ids=["empty", "cut", "bytes", "not text", "nested", "list", "number", "digest", "large"],
)  # fmt: skip
def test_an_invalid_manifest_is_reported(tmp_path: Path, raw: bytes) -> None:
    put_manifest(tmp_path, f"{LIBRARY}/broken/latest", raw)
    put_in_ollama(tmp_path, b"weights")
    broken, whole = ollama_models(tmp_path)
    assert (broken.name, broken.blob) == ("broken:latest", None)
    assert "cannot be read" in broken.reason
    assert whole.blob is not None
