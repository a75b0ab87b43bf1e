"""Ollama's manifests, resolved to blobs."""

import json
from pathlib import Path

import pytest

from ggbench.models.model_stores import OllamaModel, ollama_models
from tests.fakes.model_stores import ollama_manifest, put_blob, put_in_ollama, put_manifest

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
    [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"[]", b'{"layers": 7}', b'{"layers": [{"digest": 7}]}', b" " * (2 << 20)],
    ids=["empty", "cut", "bytes", "nested", "list", "number", "digest", "large"],
)
def test_an_invalid_manifest_is_reported(tmp_path: Path, raw: bytes) -> None:
    put_manifest(tmp_path, f"{LIBRARY}/broken/latest", raw)
    put_in_ollama(tmp_path, b"weights")
    broken, whole = ollama_models(tmp_path)
    assert (broken.name, broken.blob) == ("broken:latest", None)
    assert "cannot be read" in broken.reason
    assert whole.blob is not None
