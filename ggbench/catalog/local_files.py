"""Find the GGUF models in and below a folder by file name alone.

No header is read, so broken files are listed too. The shards of a split model are one variant; files that only
accompany a model, such as projectors, are left out.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ggbench.errors import BadFile
from ggbench.gguf_file.quants import is_sidecar, names_quant, quant_from_file_name
from ggbench.gguf_file.shards import model_name, parse_shard_name
from ggbench.plain import plain

_MAX_DEPTH = 5
"""Levels below the root: publisher, repo, quant, and two to spare."""
MAX_FOLDERS = 20_000


@dataclass(frozen=True, slots=True)
class LocalVariant:
    """One quant of a local model: a file, or a set of shards."""

    name: str
    """File name without shard suffix and `.gguf`; printable."""
    quant: str | None
    """Lower case; None where the file name has no quant."""
    paths: tuple[Path, ...]
    """Existing shards, in order."""
    file_bytes: int
    """Total size of the existing shards."""
    n_missing: int = 0
    """Number of missing shards."""

    def answers_to(self, quant: str) -> bool:
        """Return whether `quant`, in any case, matches this variant's quant, name or a file name."""
        names = (self.name, f"{self.name}.gguf", *(path.name for path in self.paths))
        return names_quant(quant, self.quant, names)


def local_variants(place: Path) -> tuple[LocalVariant, ...]:
    """Return the variants in a folder and its direct subfolders, largest first; for a file, the variant it belongs to.

    Raises BadFile for a place that does not exist or cannot be read; unreadable subfolders are skipped.
    """
    try:
        if not place.is_dir():
            return (_variant_of(place),)
        files = list(_gguf_files(place))
    except OSError as error:
        raise BadFile(f"{plain(str(place))} cannot be read: {error.strerror}", "check the path") from None
    return tuple(sorted(group_variants(files), key=lambda variant: (-variant.file_bytes, variant.name, variant.paths)))


def _variant_of(path: Path) -> LocalVariant:
    if not path.exists():
        raise BadFile(f"no such file or folder: {plain(str(path))}", "check the path")
    if not path.is_file():
        raise BadFile(f"{plain(str(path))} is neither a file nor a folder", "give a .gguf file")
    shard = parse_shard_name(path.name)
    if shard is None:
        return _variant(model_name(path.name), [path], 0)
    there = [sibling for sibling in shard.beside(path) if sibling.is_file()]
    return _variant(shard.stem, there, shard.count - len(there))


def _gguf_files(folder: Path) -> Iterator[Path]:
    below = []
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            below.append(path)
        elif path.suffix.lower() == ".gguf" and path.is_file():
            yield path
    for subfolder in below:
        try:
            children = sorted(subfolder.iterdir())
        except OSError:
            continue
        yield from (path for path in children if path.suffix.lower() == ".gguf" and path.is_file())


def group_variants(files: Iterable[Path]) -> Iterator[LocalVariant]:
    """Group files into variants; sidecars and files deleted meanwhile are left out."""
    split: defaultdict[tuple[Path, str, int], dict[int, Path]] = defaultdict(dict)
    for path in files:
        if is_sidecar(path.name):
            continue
        shard = parse_shard_name(path.name)
        if shard is None:
            with contextlib.suppress(OSError):
                yield _variant(model_name(path.name), [path], 0)
        else:
            split[path.parent, shard.stem, shard.count][shard.number] = path
    for (_, stem, count), shards in split.items():
        with contextlib.suppress(OSError):
            yield _variant(stem, [shards[number] for number in sorted(shards)], count - len(shards))


def _variant(name: str, paths: list[Path], n_missing: int) -> LocalVariant:
    return LocalVariant(
        name=plain(name),
        quant=quant_from_file_name(paths[0].name),
        paths=tuple(paths),
        file_bytes=sum(path.stat().st_size for path in paths),
        n_missing=n_missing,
    )


def find_gguf_files(root: Path) -> tuple[tuple[Path, ...], bool]:
    """Find files named `*.gguf` in and below `root`, sorted, ignoring hidden files and folders.

    A folder may contain link cycles, a hundred thousand files or a whole home: depth and number of folders are limited,
    each folder is entered once, and unreadable subfolders are skipped. The second value is whether the
    folder limit was reached. Raises OSError where `root` itself cannot be read.
    """
    found: list[str] = []
    entered = {_identity(root)}
    queue = [(root, 0)]
    for folder, depth in queue:
        try:
            with os.scandir(folder) as entries:
                listed = [entry for entry in entries if not entry.name.startswith(".")]
        except OSError:
            if depth == 0:
                raise
            continue
        below = []
        for entry in listed:
            try:
                if entry.is_dir():
                    below.append(entry)
                elif entry.name.lower().endswith(".gguf") and entry.is_file():
                    found.append(entry.path)
            except OSError:
                continue
        if depth == _MAX_DEPTH:
            continue
        for entry in sorted(below, key=lambda each: each.name):
            try:
                below_it = Path(entry.path)
                identity = _identity(below_it)
            except OSError:
                continue
            if identity in entered:
                continue
            if len(entered) == MAX_FOLDERS:
                return tuple(map(Path, sorted(found))), True
            entered.add(identity)
            queue.append((below_it, depth + 1))
    return tuple(map(Path, sorted(found))), False


def _identity(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino
