"""Group the GGUF files of a repo into variants: shards of one model together, each variant under a unique name.

Uses file names only, so that the result is the same for a Hub listing and for the download cache.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from ggbench.errors import BadFile
from ggbench.gguf_file.quants import quant_from_file_name
from ggbench.gguf_file.shards import ShardName, model_name, parse_shard_name
from ggbench.hub.repo_records import RepoFile, RepoVariant
from ggbench.plain import plain

_MAX_MISSING = 100
"""Missing shards listed by name; a file may claim to be one of 99,999."""


def group_variants(files: Iterable[RepoFile]) -> tuple[RepoVariant, ...]:
    """Group files into variants, largest first; an incomplete variant lists its missing shards."""
    groups: defaultdict[str, list[RepoFile]] = defaultdict(list)
    for file in files:
        groups[_shared_path(file.path)].append(file)
    ordered = sorted(
        (sorted(shards, key=lambda file: file.path) for shards in groups.values()),
        key=lambda shards: (-sum(file.n_bytes for file in shards), shards[0].path),
    )
    names: set[str] = set()
    variants = []
    for shards in ordered:
        path = shards[0].path
        name = next(each for each in _names(path) if each not in names)
        names.add(name)
        variants.append(RepoVariant(name, quant_from_file_name(path), tuple(shards), _missing(shards)))
    return tuple(variants)


def require_all_shards(repo: str, variant: RepoVariant) -> None:
    """Raise BadFile, naming the first missing shard, where the variant is incomplete."""
    missing = variant.missing
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise BadFile(
            f"{plain(repo)} is missing {plain(missing[0])}{more}, a shard of {variant.name}",
            "take another quant, or check the repo: the upload may still be in progress",
        )


def _shared_path(path: str) -> str:
    """Return the key shared by the shards of one variant; splits into different counts stay separate."""
    folder, shard = _shard_of(path)
    return path if shard is None else f"{folder}{shard.sibling(shard.count)}"


def _names(path: str) -> Iterator[str]:
    """Yield candidate names of a variant, best first: `x.gguf` and a split `x` cannot both be `x`."""
    folder, slash, name = path.rpartition("/")
    yield plain(f"{folder}{slash}{model_name(name)}")
    yield plain(path[: -len(".gguf")])
    yield plain(path)
    yield from (f"{plain(path)} {n}" for n in range(2, 1 << 30))


def _missing(shards: Sequence[RepoFile]) -> tuple[str, ...]:
    folder, shard = _shard_of(shards[0].path)
    if shard is None or len(shards) == shard.count:
        return ()
    there = {file.path for file in shards}
    expected = (f"{folder}{shard.sibling(number)}" for number in range(1, shard.count + 1))
    return tuple(islice((path for path in expected if path not in there), _MAX_MISSING))


def _shard_of(path: str) -> tuple[str, ShardName | None]:
    """Return the folder with its slash, and the parsed shard name, None where it is not a shard."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}", parse_shard_name(name)
