"""Repo listings: the GGUF variants of a repo at one pinned commit, and repo search.

Names and sizes are untrusted. A path outside its folder rejects the whole repo, and a response of the wrong shape is an
error. Listings are cached for offline use.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec.structs import replace

from ggbench.errors import BadFile, NetworkError, UsageError
from ggbench.files import get_cached, put_cached
from ggbench.gguf_file.quants import Role, role
from ggbench.hub.access import HubAccess
from ggbench.hub.api import api_url, fetch_json
from ggbench.hub.repo_records import (
    RepoFile,
    RepoListing,
    RepoSummary,
    RepoVariant,
    group_variants,
)
from ggbench.text import sanitize, shorten

_REPO = re.compile(r"[A-Za-z0-9_][\w.-]{0,95}/[A-Za-z0-9_][\w.-]{0,95}", re.ASCII)
_CHECKPOINT_FILE = re.compile(
    r"config\.json|generation_config\.json|model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?|[\w.-]+\.py",
    re.ASCII,
)
"""The files that Transformers needs to run a checkpoint on token ids, all at the top of its repo."""
_CHECKPOINT = "checkpoint "
"""Prefix of the revision in the cache's key, as a repo may also have GGUF files."""
_MAX_RESULTS = 1000
"""Maximum number of repos in one response of the Hub."""
_Sha256 = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
_GitName = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{40}\Z")]
_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Lfs(msgspec.Struct):
    sha256: _Sha256


class _Entry(msgspec.Struct):
    path: str = msgspec.field(name="rfilename")
    blob_id: _GitName = msgspec.field(name="blobId")
    size: _Count = 0
    lfs: _Lfs | None = None


class _Info(msgspec.Struct):
    id: str
    sha: _GitName
    siblings: list[_Entry]


class _SearchResult(msgspec.Struct, rename="camel"):
    id: str
    downloads: _Count | None = None
    last_modified: str | None = None
    gated: bool | str | None = None


def list_repo(access: HubAccess, repo: str, revision: str = "main") -> RepoListing:
    """List a repo at the commit that `revision` (a branch, a tag or a commit) resolves to.

    Offline, return the cached listing. Raises UsageError for an invalid repo name and for a repo without GGUF, BadFile
    for a path outside its folder, NetworkError for everything else.
    """
    return _list(access, repo, revision, _listing, "")


def list_checkpoint(access: HubAccess, repo: str, revision: str) -> RepoListing:
    """Return a listing whose only variant is the checkpoint of a repo: config, safetensors with their index, code.

    Offline, return the cached one. Raises UsageError for an invalid name and a repo without config.json, else
    NetworkError.
    """
    return _list(access, repo, revision, _checkpoint, _CHECKPOINT)


def _list(
    access: HubAccess, repo: str, revision: str, read: Callable[[_Info, str], RepoListing], prefix: str
) -> RepoListing:
    if not _is_name(repo):
        raise UsageError(f"{shorten(repo, 100)!r} is not a valid repo name", "write it as ORG/NAME")
    kept = cached_listing(access, repo, f"{prefix}{revision}") if access.offline else None
    if kept is not None:
        return kept
    at = "" if revision == "main" else f" at {shorten(revision, 60)}"
    info = _contents(access, repo, revision, f"listing {sanitize(repo)}{at}")
    if not _is_name(info.id):
        raise NetworkError(
            f"the Hub returned an invalid name for {repo}", "check the repo's name on the Hub, and HF_ENDPOINT"
        )
    listing = read(info, revision)
    for key in {revision, listing.commit}:
        content = msgspec.json.encode(replace(listing, revision=key))
        for name in {repo, listing.repo}:  # two names of a renamed repo
            put_cached(_cache_path(access, name, f"{prefix}{key}"), content)
    return listing


def _checkpoint(info: _Info, revision: str) -> RepoListing:
    by_path = {entry.path: entry for entry in info.siblings if _CHECKPOINT_FILE.fullmatch(entry.path)}
    if "config.json" not in by_path:
        raise UsageError(
            f"{sanitize(info.id)} has no config.json, hence no checkpoint of Transformers",
            "its GGUF files are named without transformers:",
        )
    if "model.safetensors" in by_path:
        by_path = {
            path: entry for path, entry in by_path.items() if "-of-" not in path and ".index." not in path
        }
    files = tuple(_repo_file(by_path[path]) for path in sorted(by_path))
    variant = RepoVariant("checkpoint", None, files)
    return RepoListing(info.id, revision, info.sha, (variant,), (), _now())


def cached_listing(access: HubAccess, repo: str, revision: str = "main") -> RepoListing | None:
    """Return the cached listing of a repo; None if it is missing or damaged."""
    content = get_cached(_cache_path(access, repo, revision))
    try:
        return None if content is None else msgspec.json.decode(content, type=RepoListing)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def search_repos(access: HubAccess, text: str, limit: int = 20) -> tuple[RepoSummary, ...]:
    """Search for repos with GGUF files by name, most downloaded first. Raises NetworkError."""
    doing = f"searching for {shorten(text, 60)}"
    if access.offline:
        raise NetworkError(
            f"{doing} needs the network, but offline mode is on",
            "run it without --offline and HF_HUB_OFFLINE; `ggbench models` lists local models",
        )
    wanted = (
        ("search", text),
        ("filter", "gguf"),
        ("sort", "downloads"),
        ("limit", str(min(limit, _MAX_RESULTS))),
    )
    fields = tuple(("expand", field) for field in ("downloads", "lastModified", "gated"))
    found = fetch_json(
        api_url(access, "models"), list[_SearchResult], repo="", doing=doing, params=(*wanted, *fields)
    )
    return tuple(
        RepoSummary(
            each.id,
            each.downloads,
            each.last_modified and sanitize(each.last_modified),
            bool(each.gated),
        )
        for each in found[:limit]
        if _is_name(each.id)
    )


def _is_name(repo: str) -> bool:
    # `..` would leave the folder, and the cache encodes the slash as `--`.
    return _REPO.fullmatch(repo) is not None and ".." not in repo and "--" not in repo


def _contents(access: HubAccess, repo: str, revision: str, doing: str) -> _Info:
    """Return the commit of a revision and all its files. Source: `HfApi.repo_info` with `files_metadata`."""
    access.require_network(doing)
    url = api_url(access, f"models/{repo}", "revision", revision)
    return fetch_json(url, _Info, repo=repo, doing=doing, params=[("blobs", "true")])


def _listing(info: _Info, revision: str) -> RepoListing:
    by_role: defaultdict[Role, list[RepoFile]] = defaultdict(list)
    for entry in info.siblings:
        if entry.path.lower().endswith(".gguf"):
            _check_path(entry.path, info.id)
            by_role[role(entry.path)].append(_repo_file(entry))
    found = group_variants([*by_role.pop("model", ()), *by_role.pop("draft", ())])
    if not found:
        raise UsageError(
            f"{sanitize(info.id)} has no GGUF model",
            f"search for one with `ggbench models --search {sanitize(info.id).split('/')[1]}`",
        )
    return RepoListing(
        repo=info.id,
        revision=revision,
        commit=info.sha,
        variants=found,
        sidecars=tuple(sorted(itertools.chain(*by_role.values()), key=lambda file: file.path)),
        listed_at=_now(),
    )


def _repo_file(entry: _Entry) -> RepoFile:
    return RepoFile(entry.path, entry.size, entry.lfs.sha256 if entry.lfs else None, entry.blob_id)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _check_path(path: str, repo: str) -> None:
    parts = path.split("/")
    if (
        any(part in ("", ".", "..") for part in parts)
        or "\\" in path
        or any(unicodedata.category(character) in ("Cc", "Cs") for character in path)
    ):
        raise BadFile(
            f"{sanitize(repo)} lists a file {shorten(path, 80)!r}, which points outside its folder",
            "do not use this repo",
        )


def _cache_path(access: HubAccess, repo: str, revision: str) -> Path:
    asked = "\n".join((access.endpoint, repo.lower(), revision))
    return access.listings_dir / f"{hashlib.sha256(asked.encode('utf-8', 'replace')).hexdigest()[:32]}.json"
