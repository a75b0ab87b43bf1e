"""Sizes that llama.cpp's log rounds to 0.01 MiB, exact where the log also has what they are made of.

A KV cache is cells x rows of K and V, whose widths the log gives with the model; the output buffer is the logits of one
token of each sequence. Compute buffers and the states of recurrent layers keep the digits that they have.
"""

from __future__ import annotations

import math
import re

from ggbench.errors import GgbenchError
from ggbench.gguf_file.ggml_types import row_bytes
from ggbench.units import MIB

_HALF_DIGIT_BYTES = MIB // 200 + 1
"""By which a figure in MiB with two decimals may differ from the size."""
_WIDTHS = re.compile(r"\bn_embd_(?P<part>[kv])_gqa\s*=\s*(?P<widths>\d+|\[[\d, ]+\])\s*$")
_COUNT = re.compile(r"\b(?P<name>n_vocab|n_seq_max)\s*=\s*(?P<count>\d+)\s*$")
_CACHE = re.compile(
    r"\(\s*(?P<cells>\d+) cells,\s*\d+ layers,\s*\d+/(?P<streams>\d+) seqs\), "
    r"K \((?P<type_k>\w+)\):\s*(?P<k>[\d.]+) MiB, V \((?P<type_v>\w+)\):\s*(?P<v>[\d.]+) MiB"
)
_LOGIT_BYTES = 4


class ExactSizes:
    """Reads a log line by line, and makes its sizes exact from the lines before."""

    def __init__(self) -> None:
        self._widths: dict[str, list[int]] = {}
        self._counts: dict[str, int] = {}
        self._pending: list[tuple[str, int]] = []

    def read(self, line: str) -> None:
        """Take in what a line says of the model or the context."""
        if match := _WIDTHS.search(line):
            self._widths[match["part"]] = [int(width) for width in re.findall(r"\d+", match["widths"])]
        elif match := _COUNT.search(line):
            self._counts[match["name"]] = int(match["count"])

    def output_bytes(self, rounded: int) -> int:
        """The size of an output buffer whose line gave that many bytes."""
        exact = self._counts.get("n_vocab", 0) * self._counts.get("n_seq_max", 0) * _LOGIT_BYTES
        return exact if abs(exact - rounded) <= _HALF_DIGIT_BYTES else rounded

    def part_of_cache(self, device: str, rounded: int) -> None:
        """Take in one device's buffer of the cache whose own line follows."""
        self._pending.append((device, rounded))

    def cache(self, line: str, rounded: int) -> tuple[int, dict[str, int]]:
        """The size of a cache whose own line gave that many bytes, and what to add to each device for it."""
        pending, self._pending = self._pending, []
        units = self._units(line)
        if units is None:
            return rounded, {}
        exact, unit = units
        parts = {device: _nearest(n_bytes, unit) for device, n_bytes in pending}
        if sum(parts.values()) != exact:
            return exact, {}
        return exact, {device: parts[device] - n_bytes for device, n_bytes in pending}

    def _units(self, line: str) -> tuple[int, int] | None:
        """The exact size of a cache, and what each device's part of it is a multiple of; None where it is unknown."""
        match = _CACHE.search(line)
        if match is None:
            return None
        exact, units = 0, []
        for part in "kv":
            rounded = round(float(match[part]) * MIB)
            try:
                rows = [row_bytes(match[f"type_{part}"], width) for width in self._widths.get(part, ())]
            except GgbenchError:
                return None
            unit = int(match["cells"]) * int(match["streams"]) * math.gcd(*rows)
            n_bytes = _nearest(rounded, unit)
            if abs(n_bytes - rounded) > _HALF_DIGIT_BYTES:
                return None
            exact += n_bytes
            units.append(unit)
        return exact, math.gcd(*units)


def _nearest(n_bytes: int, unit: int) -> int:
    """The multiple of a unit that is closest to a size; 0 for a unit of 0."""
    return round(n_bytes / unit) * unit if unit else 0
