"""Parse what is pasted from a browser, a Hub URL or `org/name/file.gguf`, into the grammar of MODEL."""

from __future__ import annotations

import os
import re

from ggbench.errors import UsageError
from ggbench.models.catalog import HUB_REPO
from ggbench.text import shorten

_HOST = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/", re.IGNORECASE)
_SCHEME = re.compile(r"https?://", re.IGNORECASE)
_RESERVED_NAMES = ("datasets", "spaces", "docs", "models", "papers", "collections", "api")
"""First path segments of the Hub's own pages; no organization has these names."""
_REVISION_PAGES = ("tree", "blob", "resolve", "raw")
_FORMS = "give a repo as org/name, or org/name:FILE.gguf"


def parse_address(text: str) -> str | None:
    """Return a URL of the Hub as `org/name[@revision][:file.gguf]`; None for other text.

    Raises UsageError for other pages of the Hub, and for the URL of a file elsewhere.
    """
    from urllib.parse import unquote

    rest = _without_host(text)
    if rest is None:
        return None
    parts = [unquote(part) for part in re.split(r"[?#]", rest)[0].strip("/").split("/")]
    repo, page, (revision, *path) = "/".join(parts[:2]), parts[2:3], parts[3:] or ["main"]
    if parts[0] in _RESERVED_NAMES or not HUB_REPO.fullmatch(re.split(r"[@:]", repo)[0]):
        raise UsageError(f"{shorten(text, 100)!r} is not the page of a model repo", _FORMS)
    if not page or page[0] not in _REVISION_PAGES:
        return repo
    name = repo if revision == "main" else f"{repo}@{revision}"
    if not path:
        return name
    if not path[-1].lower().endswith(".gguf"):
        raise UsageError(
            f"{shorten(text, 100)!r} is {'a folder of' if page == ['tree'] else 'not a GGUF file in'} {repo}", _FORMS
        )
    return f"{name}:{'/'.join(path)}"


def parse_repo_file(text: str) -> str | None:
    """Return `org/name:file.gguf` for `org/name/file.gguf`, which may be nested deeper; None for any other form."""
    parts = text.split("/")
    if len(parts) < 3 or not all(parts) or parts[0].lower() in _RESERVED_NAMES:
        return None
    if ":" in text or not text.lower().endswith(".gguf"):
        return None
    return f"{'/'.join(parts[:2])}:{'/'.join(parts[2:])}"


def _without_host(text: str) -> str | None:
    endpoint = (os.environ.get("HF_ENDPOINT") or "").strip().rstrip("/")
    for start in (endpoint, _SCHEME.sub("", endpoint)):
        if start and text.lower().startswith(f"{start.lower()}/"):
            return text[len(start) + 1 :]
    if match := _HOST.match(text):
        return text[match.end() :]
    if _HOST.fullmatch(f"{text}/"):
        return ""
    if _SCHEME.match(text) and re.split(r"[?#]", text)[0].lower().endswith(".gguf"):
        raise UsageError(
            f"{shorten(text, 100)!r} is the URL of a file, but not of the Hub", "download it, and give its path"
        )
    return None
