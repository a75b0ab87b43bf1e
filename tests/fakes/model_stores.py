"""Folders of other programs in their own layouts, with files that consist of headers only."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from ggbench.gguf_file.header import encode_header
from ggbench.gguf_file.model_file import TensorInfo
from ggbench.models import model_stores

COMMIT = "a" * 40


def hide_model_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the folders in the home alone: neither the system's nor those that variables name."""
    monkeypatch.setattr(model_stores, "SYSTEM_OLLAMA", ())
    for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "LLAMA_CACHE", "OLLAMA_MODELS"):
        monkeypatch.delenv(name, raising=False)


def gguf_bytes(
    architecture: str = "qwen2", n_ctx_train: int = 32768, more: Mapping[str, object] | None = None
) -> bytes:
    """A GGUF of a few hundred bytes with one tensor; `more` are keys before its tokenizer."""
    header = encode_header(
        {
            "general.architecture": architecture,
            f"{architecture}.context_length": n_ctx_train,
            **(more or {}),
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.tokens": ["<s>", "hello"],
            "general.quantization_version": 2,
        },
        (TensorInfo("token_embd.weight", (32,), "f32", 128),),
    )
    return header.data + bytes(header.file_bytes - len(header.data))


def put_in_hub_cache(cache: Path, repo: str, name: str, content: bytes, *, commit: str = COMMIT) -> Path:
    """A file of a repo in Hugging Face's cache, `main` left alone; returns the snapshot's link to its blob."""
    folder = cache / f"models--{repo.replace('/', '--')}"
    blob = folder / "blobs" / hashlib.sha256(content).hexdigest()
    blob.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(content)
    link = folder / "snapshots" / commit / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(blob)
    return link


def put_blob(root: Path, content: bytes) -> str:
    """A blob in Ollama's store; returns its digest as a manifest has it."""
    sha256 = hashlib.sha256(content).hexdigest()
    blob = root / "blobs" / f"sha256-{sha256}"
    blob.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(content)
    return f"sha256:{sha256}"


def ollama_manifest(digest: str, config_digest: str = "") -> bytes:
    layers = [
        {"mediaType": "application/vnd.ollama.image.projector", "digest": f"sha256:{'b' * 64}", "size": 1},
        {"mediaType": "application/vnd.ollama.image.model", "digest": digest, "size": 1},
        {"mediaType": "application/vnd.ollama.image.template", "digest": f"sha256:{'c' * 64}", "size": 1},
    ]
    config = {"mediaType": "application/vnd.docker.container.image.v1+json", "digest": config_digest, "size": 1}
    return json.dumps({"schemaVersion": 2, "config": config, "layers": layers}).encode()


def put_in_ollama(root: Path, content: bytes, model: str = "llama3.2", tag: str = "1b", file_type: str = "") -> Path:
    digest = put_blob(root, content)
    config = put_blob(root, json.dumps({"model_format": "gguf", "file_type": file_type}).encode())
    put_manifest(root, f"manifests/registry.ollama.ai/library/{model}/{tag}", ollama_manifest(digest, config))
    return root / "blobs" / digest.replace(":", "-")


def put_manifest(root: Path, name: str, raw: bytes) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
