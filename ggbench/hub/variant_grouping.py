"""The variants that a repo's GGUF files make: shards of one model together, each variant under a name of its own.

Told from the names alone, and the same for what the Hub lists and for what its cache holds.
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
"""Missing shards that are named; a file may claim to be one of 99,999."""


def group_variants(files: Iterable[RepoFile]) -> tuple[RepoVariant, ...]:
    """The variants of these models' files, largest first; one that lacks shards names them."""
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
    """Raise BadFile, which names the first that is missing, where the repo lacks a shard of the variant."""
    missing = variant.missing
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise BadFile(
            f"{plain(repo)} lacks {plain(missing[0])}{more}, a shard of {variant.name}",
            "take another quant, or look at the repo: it may still be uploaded",
        )


def _shared_path(path: str) -> str:
    """What the shards of one variant have in common; splits of one model into different numbers stay apart."""
    folder, shard = _shard_of(path)
    return path if shard is None else f"{folder}{shard.sibling(shard.count)}"


def _names(path: str) -> Iterator[str]:
    """What a variant may be called, the best first: `x.gguf` beside a split `x` cannot both be `x`."""
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
    """The folder, with its slash, and the file's name taken apart where it is a shard's."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}", parse_shard_name(name)
