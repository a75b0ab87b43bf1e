"""A cursor over the header bytes of a GGUF, from a local file or a remote one.

Every length in a header is untrusted: each is compared with the bytes that are left before anything of that length is
read or allocated. Bytes are read as they are needed, so a remote source transfers little more than the header.
The numbers of the format are literals and not gguf's constants, because a GGUF of version 2 or 3 can have no others,
and because `ggbench models` reads the beginning of many headers without importing gguf. The tests compare them.
Source: the GGUF specification (ggml, docs/gguf.md) and enum gguf_type of gguf.h.
"""

from __future__ import annotations

import struct
from typing import Protocol

from ggbench.errors import BadFile
from ggbench.units import format_bytes, format_count

MAGIC = b"GGUF"
VERSION = 3
"""What ggbench writes."""
READABLE_VERSIONS = (2, 3)

ALIGNMENT = 32
"""Bytes; what a reader assumes where `general.alignment` is absent, and what ggbench writes."""
ALIGNMENT_KEY = "general.alignment"
ARCHITECTURE_KEY = "general.architecture"

NUMBER_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""The `struct` code of each value type that is a number."""
STRING, ARRAY = 8, 9
"""The other value types."""

BROKEN_HINT = "the file is damaged, incomplete, or not a GGUF; download or convert it again"

_LARGEST_HEADER_BYTES = 256 << 20
"""Well above any real one: a vocabulary of 262,144 tokens with its merges takes about 15 MiB."""


class ByteSource(Protocol):
    """What a header is read from: a binary file, or ranges of a remote one."""

    def seek(self, offset: int, /) -> int:
        """Move to an offset from the start."""

    def read(self, n_bytes: int, /) -> bytes:
        """Return up to that many bytes; none at the end."""


class HeaderBytes:
    """Read a header front to back; raise BadFile, naming the file, where the bytes are missing."""

    def __init__(self, source: ByteSource, size: int, name: str, chunk_bytes: int) -> None:
        """Read from the source in chunks of this size, or as much as is needed at once."""
        self.name = name
        """For messages; printable."""
        self.size = size
        """Of the whole file, bytes."""
        self.position = 0
        self._source, self._chunk_bytes = source, chunk_bytes
        self._data = bytearray()
        self._order = "<"
        self._u64 = struct.Struct("<Q")
        source.seek(0)

    @property
    def n_left(self) -> int:
        """Bytes of the file after the position."""
        return self.size - self.position

    @property
    def consumed(self) -> bytes:
        """Every byte up to the position."""
        return bytes(self._data[: self.position])

    def broken(self, reason: str) -> BadFile:
        """Return the error that something in the header is wrong."""
        return BadFile(f"{self.name}: {reason}", BROKEN_HINT)

    def use_big_endian(self) -> None:
        """Read all further numbers as big endian."""
        self._order = ">"
        self._u64 = struct.Struct(">Q")

    def expect(self, n_items: int, least_bytes: int, what: str) -> None:
        """Raise BadFile unless that many items, of at least that many bytes each, can follow."""
        if n_items * least_bytes > self.n_left:
            left = format_bytes(self.n_left)
            raise self.broken(f"{format_count(n_items)} {what} cannot fit into its last {left}")

    def take(self, n_bytes: int, what: str) -> bytes:
        """Return the next bytes."""
        start = self.skip(n_bytes, what)
        return bytes(self._data[start : start + n_bytes])

    def skip(self, n_bytes: int, what: str) -> int:
        """Skip bytes, and return where they begin in the bytes read so far."""
        start, end = self.position, self.position + n_bytes
        if end > len(self._data):
            self._fill(end, what)
        self.position = end
        return start

    def number(self, code: str, what: str) -> int | float | bool:
        """Return one number by its `struct` code."""
        layout = self._order + code
        start = self.skip(struct.calcsize(layout), what)
        value: int | float | bool = struct.unpack_from(layout, self._data, start)[0]
        return value

    def numbers(self, code: str, count: int, what: str) -> tuple[int | float | bool, ...]:
        """Return that many numbers of one `struct` code."""
        self.expect(count, struct.calcsize("<" + code), what)
        layout = f"{self._order}{count}{code}"
        start = self.skip(struct.calcsize(layout), what)
        return struct.unpack_from(layout, self._data, start)

    def u32(self, what: str) -> int:
        """Return one unsigned number of 4 bytes."""
        return int(self.number("I", what))

    def u64(self, what: str) -> int:
        """Return one unsigned number of 8 bytes."""
        start = self.skip(8, what)
        value: int = self._u64.unpack_from(self._data, start)[0]
        return value

    def string(self, most_bytes: int, what: str) -> str:
        """Return the text of a length and that many bytes of UTF-8; what is not UTF-8 becomes U+FFFD."""
        n_bytes = self.u64(what)
        if n_bytes > most_bytes:
            raise self.broken(f"{what} claims a length of {format_count(n_bytes)} bytes")
        return self.take(n_bytes, what).decode("utf-8", errors="replace")

    def skip_strings(self, count: int, what: str) -> None:
        """Skip strings without decoding them: a vocabulary has more than a hundred thousand."""
        self.expect(count, 8, what)
        length_at = self._u64.unpack_from
        while count:
            self._fill(self.position + 8, what)
            data, position, last = self._data, self.position, len(self._data) - 8
            while count and position <= last:
                position += 8 + length_at(data, position)[0]
                count -= 1
            self._fill(position, what)
            self.position = position

    def _fill(self, end: int, what: str) -> None:
        if end > self.size:
            raise BadFile(
                f"{self.name} ends inside its header: {format_count(end - self.size)} bytes are missing at {what}",
                BROKEN_HINT,
            )
        if end > _LARGEST_HEADER_BYTES:
            raise self.broken(f"its header is larger than {format_bytes(_LARGEST_HEADER_BYTES)}")
        while len(self._data) < end:
            try:
                chunk = self._source.read(max(self._chunk_bytes, end - len(self._data)))
            except OSError as error:
                raise BadFile(
                    f"{self.name} cannot be read: {error.strerror or error}", "check the disk or the network"
                ) from error
            if not chunk:
                raise BadFile(
                    f"{self.name} ended after {format_bytes(len(self._data))} of {format_bytes(self.size)}", BROKEN_HINT
                )
            self._data += chunk
