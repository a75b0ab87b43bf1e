"""From a path, or from headers already read, to a `ModelFile`.

Reading and assembling are separate, so that headers fetched over HTTP make the same ModelFile as files on this disk.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path

import msgspec
import msgspec.structs
from msgspec.structs import asdict

from ggbench.errors import BadFile
from ggbench.gguf_file import gguf_constants
from ggbench.gguf_file.architecture import read_shape
from ggbench.gguf_file.header_bytes import ARCHITECTURE_KEY, BROKEN_HINT
from ggbench.gguf_file.model_file import ModelFile, TensorInfo
from ggbench.gguf_file.parser import Header, read_header
from ggbench.gguf_file.quants import model_name, parse_shard_name
from ggbench.text import sanitize, shorten_middle

_MOST_SHARDS = 99_999
_LONGEST_NAME = 255
"""Of characters; no file system that Linux, macOS or Windows start from takes more."""


def read_model_file(path: Path, *, allow_missing_data: bool = False) -> ModelFile:
    """Return the model in this file; given one shard of a split model, all of it.

    `allow_missing_data` accepts files of which only the header is there. Raises BadFile, and Unsupported for old
    versions.
    """
    header = read_local_header(path, allow_missing_data=allow_missing_data)
    paths = _shard_paths(path, shard_count(header, path.name))
    headers = [
        header if shard == path else read_local_header(shard, allow_missing_data=allow_missing_data) for shard in paths
    ]
    return assemble(headers, model_name(path.name), paths)


def read_local_header(path: Path, *, allow_missing_data: bool = False) -> Header:
    """Return the header of this one file, without other shards. Raises BadFile, and Unsupported for old versions."""
    name = shorten_middle(path.name, _LONGEST_NAME)
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            inside = sorted(sanitize(entry.name) for entry in path.iterdir() if entry.suffix.lower() == ".gguf")
            raise BadFile(
                f"{name or sanitize(str(path))} is a folder",
                f"name a file in it: {', '.join(inside[:3])}" if inside else "it holds no .gguf file",
            )
        if not stat.S_ISREG(status.st_mode):
            raise BadFile(f"{name} is not an ordinary file", "name a .gguf file")
        with path.open("rb", buffering=0) as source:
            size = os.fstat(source.fileno()).st_size
            return read_header(source, size, path.name, allow_missing_data=allow_missing_data)
    except FileNotFoundError:
        raise BadFile(f"{name} is not there", f"looked in {sanitize(str(path.parent.absolute()))}") from None
    except PermissionError:
        raise BadFile(f"{name} may not be read", "change its permissions, or those of its folder") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BadFile(f"{name} cannot be opened: {reason}", "check the path") from error


def shard_count(header: Header, name: str) -> int:
    """Return into how many files the model is split, 1 for a whole one. Raises BadFile for an absurd number."""
    count = header.metadata.get(gguf_constants.Keys.Split.LLM_KV_SPLIT_COUNT, 1)
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= _MOST_SHARDS:
        raise BadFile(f"{sanitize(name)}: split.count is {str(count)[:40]!r}", BROKEN_HINT)
    return max(count, 1)


def assemble(headers: Sequence[Header], name: str, paths: Sequence[Path] = ()) -> ModelFile:
    """Make one ModelFile of the headers of all its shards, in order; `paths` stays empty for files that are not local.

    Raises BadFile where the shards do not belong together.
    """
    printable = sanitize(name)
    first = headers[0]
    _check_shards(headers, printable)
    tensors: dict[str, TensorInfo] = {}
    for index, header in enumerate(headers):
        for tensor in header.tensors:
            if tensor.name in tensors:
                raise BadFile(f"{printable}: tensor {tensor.name[:80]!r} is in two shards", BROKEN_HINT)
            tensors[tensor.name] = msgspec.structs.replace(tensor, shard=index) if index else tensor
    metadata = first.metadata
    architecture = metadata.get(ARCHITECTURE_KEY)
    architecture = architecture if isinstance(architecture, str) and architecture else "unknown"
    shape = read_shape(printable, architecture, metadata, tensors.values())
    digest = hashlib.sha256()
    for header in headers:
        digest.update(header.raw)
    return ModelFile(
        name=name,
        paths=tuple(paths),
        file_bytes=sum(header.file_bytes for header in headers),
        missing_bytes=sum(header.missing_bytes for header in headers),
        version=first.version,
        big_endian=first.big_endian,
        architecture=architecture,
        metadata=metadata,
        tensors=tuple(tensors.values()),
        header_sha256=digest.hexdigest(),
        **asdict(shape),
    )


def _shard_paths(path: Path, count: int) -> list[Path]:
    if count == 1:
        return [path]
    shard = parse_shard_name(path.name)
    if shard is None or shard.count != count:
        raise BadFile(
            f"{sanitize(path.name)} is one of {count} shards but is not named so",
            f"name the shards as they were published: NAME-00001-of-{count:05}.gguf",
        )
    paths = shard.beside(path)
    missing = [candidate.name for candidate in paths if not candidate.exists()]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise BadFile(f"shard {sanitize(missing[0])}{more} is missing", "download it into the same folder")
    return paths


def _check_shards(headers: Sequence[Header], name: str) -> None:
    if len(headers) == 1:
        return
    keys = gguf_constants.Keys.Split
    for index, header in enumerate(headers):
        number, count = header.metadata.get(keys.LLM_KV_SPLIT_NO), header.metadata.get(keys.LLM_KV_SPLIT_COUNT)
        if number != index or count != len(headers):
            stated = f"{number + 1} of {str(count)[:40]!r}" if isinstance(number, int) else "none"
            raise BadFile(
                f"{name}: the file in place {index + 1} of {len(headers)} says that it is {stated}",
                "download the shards again, all from one place",
            )
    claimed = headers[0].metadata.get(keys.LLM_KV_SPLIT_TENSORS_COUNT)
    found = sum(len(header.tensors) for header in headers)
    if claimed is not None and claimed != found:
        raise BadFile(f"{name}: its shards hold {found} tensors, its header says {str(claimed)[:40]!r}", BROKEN_HINT)


_ARCHITECTURE = "clip"


class Projector(msgspec.Struct, frozen=True):
    """A vision or audio projector: the GGUF beside a model that llama.cpp loads with `--mmproj`.

    llama.cpp puts all of its tensors on the first GPU, however many layers of the model are there, else in main memory.
    Its compute buffer depends on the image and is known only once clip has reserved it, so it is not counted. Source:
    tools/mtmd/clip.cpp, `clip_ctx` and `load_tensors`.
    """

    path: Path
    weight_bytes: int
    """Without a compute buffer."""


def read_projector(path: Path) -> Projector:
    """Return the projector in a file, from its header. Raises BadFile for another kind of file."""
    file = read_model_file(path)
    if file.architecture != _ARCHITECTURE:
        raise BadFile(
            f"{sanitize(path.name)} is a model of the architecture {sanitize(file.architecture)}, not a projector",
            "give the file that is published beside the model as mmproj",
        )
    if file.weight_bytes is None:
        raise BadFile(
            f"{sanitize(path.name)} has tensors of unknown type: {sanitize(', '.join(file.unknown_types))}",
            "take another file of the projector, as F16",
        )
    return Projector(path, file.weight_bytes)
