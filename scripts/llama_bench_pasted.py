"""llama-bench's output as people paste it: tables among log lines, quoted or not, of any version, or JSON or CSV.

Log lines before a table name the devices, and the line `build:` follows its tables or precedes all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from ggbench.errors import BadFile
from ggbench.formats.llama_bench import BenchRow, is_objects, read_objects
from ggbench.text import sanitize
from scripts.llama_bench_table import BUILD, is_csv, is_table_header, read_csv, table_cells, table_fields

_DEVICES = tuple(
    re.compile(pattern)
    for pattern in (
        r"Device (?P<index>\d+): (?P<name>[^,]+),",  # CUDA and ROCm
        r"ggml_vulkan: (?P<index>\d+) = (?P<name>.+?) \(",
        r"ggml_vulkan: (?P<index>\d+) = (?P<name>[^|(]+) \|",
        r"\|\s*(?P<index>\d+)\s*\|\s*\[level_zero:gpu:\d+\]\s*\|\s*(?P<name>[^|]+?)\s*\|",  # SYCL
        r"registered device (?:SYCL|Vulkan|CUDA|ROCm)(?P<index>\d+) \((?P<name>.+)\)$",
        r"ggml_metal_device_init: GPU name:\s+(?:MTL(?P<index>\d+) \()?(?P<name>Apple [^)]+)",
        r"ggml_metal_init: found device: (?P<index>)(?P<name>Apple .+)",
    )
)
_A_TEST = re.compile(r"\b(?:pp|tg) ?\d")
"""Matches all rows of llama-bench but no row of another table in the log, such as SYCL's list of devices."""
_UNITS = {"MiB": 2**20, "GiB": 2**30, "M": 10**6, "B": 10**9}


class PastedRow(msgspec.Struct, frozen=True):
    where: str
    """`bench.md, line 12`, for messages."""
    row: BenchRow
    """Its `model_size` and `model_n_params` are the table's, hence rounded."""
    devices: tuple[str, ...]
    """Names in the log, one per device; empty if there are none."""


def read_pasted(text: str, name: str) -> Iterator[PastedRow | BadFile]:
    """Yield each row in the text, or the error in it, skipping other lines; an error if there is neither.

    Raises BadFile for broken JSON or CSV.
    """
    found: PastedRow | BadFile | None = None
    for found in _read(text, name):
        yield found
    if found is None:
        yield BadFile(f"{name}: no row of llama-bench in it", "paste the table with its header, or JSON or CSV")


def _read(text: str, name: str) -> Iterator[PastedRow | BadFile]:
    if is_objects(text) or is_csv(text):
        for where, raw in read_objects(text, name) if is_objects(text) else read_csv(text, name):
            gpus = [part.strip() for part in str(raw.get("gpu_info") or "").split(",")]
            yield _row(raw, where, tuple(sanitize(gpu) for gpu in gpus if gpu))
    else:
        yield from _read_tables(text, name)


def _read_tables(text: str, name: str) -> Iterator[PastedRow | BadFile]:
    header: list[str] = []
    has_rows = False
    devices: tuple[str, ...] = ()
    build: dict[str, str] = {}
    waiting: list[tuple[str, dict[str, object], tuple[str, ...]]] = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line, where = _unquoted(raw), f"{name}, line {number}"
        if found := BUILD.match(line):
            stated = {"build_commit": found[1], "build_number": found[2] or "0"}
            build = build if waiting else stated
            yield from (_row(fields | stated, place, known) for place, fields, known in waiting)
            waiting = []
        elif device := _device(line):
            devices = (device[1],) if device[0] == 0 else (*devices, device[1])
        elif is_table_header(line.lower()):
            header, has_rows = table_cells(line.lower()), False
        elif has_rows and not line:
            header = []
        elif header and line.count("|") > 1 and _A_TEST.search(line):
            has_rows = True
            try:
                waiting.append((where, _fields(table_cells(line), header, where), devices))
            except BadFile as error:
                yield error
    yield from (_row(fields | build, place, known) for place, fields, known in waiting)


def _unquoted(line: str) -> str:
    """Return a line without quote marks, restoring the character that Windows consoles break."""
    return line.replace("Â±", "±").lstrip("> \t").rstrip()


def _device(line: str) -> tuple[int, str] | None:
    for pattern in _DEVICES:
        if found := pattern.search(line):
            return int(found["index"] or 0), sanitize(found["name"].strip())
    return None


def _fields(cells: list[str], header: list[str], where: str) -> dict[str, object]:
    if len(cells) != len(header):
        raise BadFile(
            f"{where}: it has {len(cells)} cells under {len(header)} headers", "paste the whole table"
        )
    named = dict(zip(header, cells, strict=True))
    sizes = (("model_size", named.get("size", "")), ("model_n_params", named.get("params", "")))
    return table_fields(named, where) | {field: _count(cell, where) for field, cell in sizes if cell}


def _count(cell: str, where: str) -> int:
    number, _, unit = cell.replace(",", "").partition(" ")
    try:
        return round(float(number) * _UNITS[unit])
    except (ValueError, KeyError, OverflowError):
        raise BadFile(
            f"{where}: {cell[:40]!r} is not a size such as 3.56 GiB or 6.74 B", "paste the table"
        ) from None


def _row(raw: Mapping[str, object], where: str, devices: tuple[str, ...]) -> PastedRow | BadFile:
    try:
        return PastedRow(where, BenchRow.of(raw, where), devices)
    except BadFile as error:
        return error
