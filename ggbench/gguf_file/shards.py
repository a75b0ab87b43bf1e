"""Names of split models: `x-00001-of-00003.gguf` is one third of `x`.

The pattern is llama.cpp's own (`llama_split_path`): five digits each, counted from one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ShardName:
    """The parts of a shard's file name."""

    stem: str
    """The part that all shards share."""
    number: int
    """From 1."""
    count: int

    def sibling(self, number: int) -> str:
        """Return the file name of another shard of the same model."""
        return f"{self.stem}-{number:05}-of-{self.count:05}.gguf"

    def beside(self, path: Path) -> list[Path]:
        """Return the paths of all shards, where this one is at `path`."""
        return [path if n == self.number else path.with_name(self.sibling(n)) for n in range(1, self.count + 1)]


def parse_shard_name(file_name: str) -> ShardName | None:
    """Return the parts of a shard's file name; None for a name that is not one."""
    match = _SHARD.fullmatch(file_name)
    if match is None:
        return None
    number, count = int(match["number"]), int(match["count"])
    return ShardName(match["stem"], number, count) if 1 <= number <= count else None


def model_name(file_name: str) -> str:
    """Return the name of the model in this file: no shard suffix, no `.gguf`."""
    shard = parse_shard_name(file_name)
    if shard is not None:
        return shard.stem
    return file_name[: -len(".gguf")] if file_name.lower().endswith(".gguf") else file_name
