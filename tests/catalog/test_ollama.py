"""Ollama's manifests, resolved to blobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ggbench.catalog.ollama import OllamaModel, ollama_models
from tests.fakes.model_stores import ollama_manifest, put_blob, put_in_ollama, put_manifest

LIBRARY = "manifests/registry.ollama.ai/library"


def test_a_tag_leads_to_the_blob_of_its_weights(tmp_path: Path) -> None:
    """Not to the projector or the template; the config tells the quant where the tag does not."""
    blob = put_in_ollama(tmp_path, b"weights", file_type="Q4_K_M")
    assert list(ollama_models(tmp_path)) == [OllamaModel("llama3.2:1b", blob, "q4_k_m")]


def test_names_are_those_that_ollama_run_takes(tmp_path: Path) -> None:
    """The library and the public registry go unsaid; a quant in the tag is told."""
    raw = ollama_manifest(put_blob(tmp_path, b"weights"))
    put_manifest(tmp_path, f"{LIBRARY}/qwen2.5/7b-instruct-q8_0", raw)
    put_manifest(tmp_path, "manifests/registry.ollama.ai/someone/tuned/latest", raw)
    put_manifest(tmp_path, "manifests/hf.co/org/repo/Q4_K_M", raw)
    put_manifest(tmp_path, "manifests-v2/localhost%3A5000/a/b/c", raw)
    put_manifest(tmp_path, f"{LIBRARY}/qwen2.5/.being-written", raw)
    put_manifest(tmp_path, f"{LIBRARY}/too-high", raw)
    assert {(model.name, model.quant) for model in ollama_models(tmp_path)} == {
        ("qwen2.5:7b-instruct-q8_0", "q8_0"),
        ("someone/tuned:latest", None),
        ("hf.co/org/repo:Q4_K_M", "q4_k_m"),
        ("localhost:5000/a/b:c", None),
    }


def test_a_manifest_may_be_a_list_of_builds_kept_as_blobs(tmp_path: Path) -> None:
    """As Ollama 0.40 keeps them; the older manifest of the same name is not told again."""
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
def test_a_digest_that_is_none_leads_nowhere(tmp_path: Path, digest: str) -> None:
    """No path is made of it."""
    put_manifest(tmp_path, f"{LIBRARY}/evil/latest", ollama_manifest(digest))
    (model,) = ollama_models(tmp_path)
    assert model.blob is None
    assert "no digest" in model.reason


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"[]", b'{"layers": 7}', b'{"layers": [{"digest": 7}]}', b" " * (2 << 20)],
    ids=["empty", "cut", "bytes", "nested", "list", "number", "digest", "large"],
)
def test_a_manifest_that_is_garbage_is_told(tmp_path: Path, raw: bytes) -> None:
    """One broken manifest does not hide the others."""
    put_manifest(tmp_path, f"{LIBRARY}/broken/latest", raw)
    put_in_ollama(tmp_path, b"weights")
    broken, whole = ollama_models(tmp_path)
    assert (broken.name, broken.blob) == ("broken:latest", None)
    assert "cannot be read" in broken.reason
    assert whole.blob is not None


def test_a_model_without_one_file_of_weights_is_told(tmp_path: Path) -> None:
    """Safetensors are a layer for each tensor."""
    put_manifest(
        tmp_path, f"{LIBRARY}/mlx/latest", b'{"layers": [{"mediaType": "application/vnd.ollama.image.tensor"}]}'
    )
    (model,) = ollama_models(tmp_path)
    assert "no weights in one file" in model.reason


def test_loops_of_links_and_files_for_folders_are_passed_over(tmp_path: Path) -> None:
    """What is no manifest is no model."""
    folder = tmp_path / LIBRARY / "loop"
    folder.mkdir(parents=True)
    (folder / "tag").symlink_to(folder / "tag")
    (tmp_path / "manifests-v2").write_bytes(b"")
    assert list(ollama_models(tmp_path)) == []


def test_a_store_that_is_not_there_raises(tmp_path: Path) -> None:
    """The caller tells why a store is missing."""
    with pytest.raises(FileNotFoundError):
        list(ollama_models(tmp_path / "nowhere"))
