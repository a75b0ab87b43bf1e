"""Every way in which bytes are damaged: in storage, on the network, and by someone who means harm."""

import random
import re
import struct
from collections.abc import Callable

Mutation = Callable[[random.Random, bytearray], None]
_WORDS = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
_HARMFUL = (b"\xff\xfe", b"\x00", b"\x1b[2J", b"\xed\xa0\x80", "\u202e".encode(), b"../", b"<b>", b"\n\r", b"'\"`")


def _span(draw: random.Random, data: bytearray, most: int = 64) -> tuple[int, int]:
    begin = draw.randrange(len(data) or 1)
    return begin, min(len(data), begin + draw.randint(1, most))


def _flip_bits(draw: random.Random, data: bytearray) -> None:
    for _ in range(draw.randint(1, 4)):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)


def _overwrite(draw: random.Random, data: bytearray) -> None:
    begin, end = _span(draw, data)
    data[begin:end] = draw.randbytes(end - begin)


def _zero(draw: random.Random, data: bytearray) -> None:
    begin, end = _span(draw, data, 4096)
    data[begin:end] = bytes(end - begin)


def _cut(draw: random.Random, data: bytearray) -> None:
    del data[draw.randrange(len(data)) :]


def _insert(draw: random.Random, data: bytearray) -> None:
    at = draw.randrange(len(data))
    data[at:at] = draw.randbytes(draw.randint(1, 40))


def _remove(draw: random.Random, data: bytearray) -> None:
    begin, end = _span(draw, data)
    del data[begin:end]


def _repeat(draw: random.Random, data: bytearray) -> None:
    begin, end = _span(draw, data, 512)
    data[begin:begin] = data[begin:end]


def _swap(draw: random.Random, data: bytearray) -> None:
    first, second = sorted((_span(draw, data), _span(draw, data)))
    if first[1] <= second[0]:
        one, other = data[slice(*first)], data[slice(*second)]
        data[slice(*second)] = one
        data[slice(*first)] = other


def _append(draw: random.Random, data: bytearray) -> None:
    data += draw.randbytes(draw.randint(1, 4096))


def _word64(draw: random.Random, data: bytearray) -> None:
    at = draw.randrange(max(1, len(data) - 8))
    data[at : at + 8] = struct.pack("<Q", draw.choice(_WORDS))


def _word32(draw: random.Random, data: bytearray) -> None:
    at = draw.randrange(max(1, len(data) - 4))
    data[at : at + 4] = struct.pack("<I", draw.choice(_WORDS) & 0xFFFFFFFF)


def _counts(draw: random.Random, data: bytearray) -> None:
    """A GGUF's version, tensors and keys; any file's first words."""
    at, code = draw.choice(((4, "<I"), (8, "<Q"), (16, "<Q")))
    word = draw.choice((*_WORDS, draw.randrange(2000)))
    data[at : at + struct.calcsize(code)] = struct.pack(code, word & (2 ** (8 * struct.calcsize(code)) - 1))


def _swap_bytes(_draw: random.Random, data: bytearray) -> None:
    for begin, end in ((4, 8), (8, 16), (16, 24)):
        data[begin:end] = bytes(reversed(data[begin:end]))


def _harmful_text(draw: random.Random, data: bytearray) -> None:
    text = draw.choice(_HARMFUL)
    at = draw.randrange(max(1, len(data) - len(text)))
    data[at : at + len(text)] = text


def _small_number(draw: random.Random, data: bytearray) -> None:
    """Another type code, rank or length in place of one."""
    places = [at for at in range(min(len(data) - 4, 20_000)) if data[at] < 16 and data[at + 1 : at + 4] == b"\0\0\0"]
    if places:
        data[draw.choice(places)] = draw.randrange(64)


MUTATIONS: dict[str, Mutation] = {
    "bits flipped": _flip_bits, "bytes overwritten": _overwrite, "pages of zeros": _zero, "cut": _cut,
    "bytes inserted": _insert, "bytes removed": _remove, "a part repeated": _repeat, "two parts swapped": _swap,
    "garbage appended": _append, "an extreme 64-bit word": _word64, "an extreme 32-bit word": _word32,
    "wrong counts": _counts, "the other byte order": _swap_bytes, "harmful text": _harmful_text,
    "another small number": _small_number,
}  # fmt: skip


_VALUE = re.compile(rb'"[^"\n]*"|-?\d[\d.eE+-]*|\b(?:true|false|null)\b')
_VALUES = (
    b"0", b"-1", b"1", b"1e308", b"1e-320", b"-0.0", b"9223372036854775808", b"1" * 5000, b"nan", b"NaN", b"inf",
    b'""', b'"\\u001b[2J"', b'"\\ud800"', b'"../../x"', b'"' + b"x" * 5000 + b'"', b"null", b"true", b"[]", b"{}",
    b'["a"]', b'{"a":1}', b"[" * 5000,
)  # fmt: skip


def _another_value(draw: random.Random, data: bytearray) -> None:
    if found := list(_VALUE.finditer(data)):
        begin, end = draw.choice(found).span()
        data[begin:end] = draw.choice(_VALUES)


def _value_elsewhere(draw: random.Random, data: bytearray) -> None:
    """A value, or a name, in place of another."""
    if found := list(_VALUE.finditer(data)):
        (begin, end), other = draw.choice(found).span(), draw.choice(found)[0]
        data[begin:end] = other


def _line_elsewhere(draw: random.Random, data: bytearray) -> None:
    lines = data.splitlines(keepends=True)
    line = lines.pop(draw.randrange(len(lines)))
    lines.insert(draw.randrange(len(lines) + 1), line * draw.randrange(3))
    data[:] = b"".join(lines)


TEXT_MUTATIONS: dict[str, Mutation] = {
    "another value": _another_value, "a value elsewhere": _value_elsewhere, "a line elsewhere": _line_elsewhere
}  # fmt: skip
"""Damage of JSON, TOML and CSV that mostly leaves them such."""


def damaged(content: bytes, draw: random.Random, kind: str) -> bytes:
    """Return the content with one damage of this kind, and in one of four cases a second one of any kind."""
    data = bytearray(content)
    (MUTATIONS | TEXT_MUTATIONS)[kind](draw, data)
    if data and not draw.randrange(4):
        MUTATIONS[draw.choice(list(MUTATIONS))](draw, data)
    return bytes(data)
