"""A repo of one file and one split one on the test Hub, and what a download of it leaves in the cache."""

import random
from collections.abc import Sequence
from pathlib import Path

from ggbench.hub.access import HubAccess
from ggbench.hub.part_file import PART_SUFFIX
from ggbench.hub.repo_records import RepoFile, RepoListing, RepoVariant, repo_folder
from tests.fakes.hub import TestHub

MIB = 1 << 20
REPO = "org/tiny-GGUF"
CONTENT = random.Random(1).randbytes(3 * MIB)
SHARDS = tuple(random.Random(number).randbytes(MIB) for number in (2, 3, 4))
FILE = "tiny-q8_0.gguf"
SHARD_PATHS = tuple(f"q4_k_m/tiny-q4_k_m-{number:05}-of-00003.gguf" for number in (1, 2, 3))
BODIES = "/cdn/*.gguf"
"""The path that the content of every file comes from."""


def add_tiny_repo(hub: TestHub) -> None:
    hub.add_repo(REPO, {FILE: CONTENT, **dict(zip(SHARD_PATHS, SHARDS, strict=True)), "README.md": b"# tiny\n"})


def tiny_listing(hub: TestHub) -> RepoListing:
    ((commit, held),) = hub.repos[REPO].commits.items()

    def variant(quant: str, paths: Sequence[str]) -> RepoVariant:
        files = [RepoFile(path, held[path].n_bytes, held[path].sha256, held[path].blob_id) for path in paths]
        return RepoVariant(f"tiny-{quant}", quant, tuple(files))

    variants = (variant("q8_0", [FILE]), variant("q4_k_m", SHARD_PATHS))
    return RepoListing(REPO, "main", commit, variants, (), "2026-01-02T03:04:05Z")


def part_of(access: HubAccess, variant: RepoVariant) -> Path:
    return repo_folder(access, REPO) / "blobs" / f"{variant.files[0].etag}{PART_SUFFIX}"


def put_part(access: HubAccess, variant: RepoVariant, content: bytes) -> Path:
    part = part_of(access, variant)
    part.parent.mkdir(parents=True)
    part.write_bytes(content)
    return part


def files_under(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if not path.is_dir() and path.suffix != ".lock"]


def assert_nothing_has_its_name(access: HubAccess) -> None:
    assert all(path.name.endswith(PART_SUFFIX) for path in files_under(access.hub_cache))
