"""llama-bench's rows: JSON and JSON lines, read strictly, and complete JSON with every repetition.

Source: `test::get_fields` and `test::get_field_type` of llama.cpp's tools/llama-bench/llama-bench.cpp.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from ggbench.errors import BadFile
from ggbench.machine.records import Cell, ImportedRow
from ggbench.record import Record
from ggbench.text import sanitize, shorten

TOOL = "llama-bench"
MOST_TOKENS = 1 << 31
"""Positions are signed 32-bit integers in llama.cpp."""

_MOST_SAMPLES = 100_000
_LONGEST_TEXT = 4096
_LARGEST_INTEGER = (1 << 63) - 1
_LARGEST = {bool: 1, int: _LARGEST_INTEGER, float: sys.float_info.max}


FIELDS: dict[str, Cell] = {
    "build_commit": "unknown", "build_number": 0, "cpu_info": "", "gpu_info": "", "backends": "", "model_filename": "",
    "model_type": "", "model_size": 0, "model_n_params": 0, "n_batch": 2048, "n_ubatch": 512, "n_threads": 0,
    "cpu_mask": "0x0", "cpu_strict": False, "poll": 50, "type_k": "f16", "type_v": "f16", "n_gpu_layers": -1,
    "n_cpu_moe": 0, "split_mode": "layer", "main_gpu": 0, "no_kv_offload": False, "flash_attn": -1, "devices": "auto",
    "tensor_split": "0.00", "tensor_buft_overrides": "none", "load_mode": "auto", "lazy_mode": "auto",
    "embeddings": False, "no_op_offload": 0, "no_host": False, "repack": True, "fit_target": 0, "fit_min_ctx": 0,
    "n_prompt": 0, "n_gen": 0, "n_depth": 0, "test_time": "", "avg_ns": 0, "stddev_ns": 0, "avg_ts": 0.0,
    "stddev_ts": 0.0,
}  # fmt: skip
"""All fields in llama-bench's order with their defaults, which also give the types. `compare-llama-bench.py` does not
join rows with missing fields."""

_OF_THE_TEST = frozenset(
    ("n_prompt", "n_gen", "n_depth", "test_time", "avg_ns", "stddev_ns", "avg_ts", "stddev_ts")
)  # fmt: skip
_OLDER: dict[str, Cell] = {"use_mmap": True}
"""Fields of older versions that say how a model was loaded."""


class BenchRow(Record):
    fields: dict[str, Cell]
    samples_ns: tuple[int, ...] = ()
    """Time of each repetition; empty if only their mean is known."""

    @classmethod
    def of(cls, raw: Mapping[str, object], where: str) -> BenchRow:
        """Return the row with these raw fields, ignoring unknown ones.

        Raises BadFile for a missing or invalid field, naming it and `where`.
        """
        fields = {
            name: _cell(raw[name], type(default), f"{where}: {name}")
            for name, default in (FIELDS | _OLDER).items()
            if raw.get(name) is not None
        }
        row = cls(fields, _samples(raw.get("samples_ns"), f"{where}: samples_ns"))
        row._check(where)
        return row

    @classmethod
    def from_record(cls, record: ImportedRow) -> BenchRow:
        fields = dict(record.fields)
        samples = fields.pop("samples_ns", None)
        return cls(fields, tuple(int(each) for each in samples) if isinstance(samples, list) else ())

    @property
    def record(self) -> ImportedRow:
        return ImportedRow(TOOL, {**self.fields, "samples_ns": list(self.samples_ns)})

    @property
    def n_prompt(self) -> int:
        return self.integer("n_prompt")

    @property
    def n_gen(self) -> int:
        return self.integer("n_gen")

    @property
    def n_depth(self) -> int:
        return self.integer("n_depth")

    @property
    def test(self) -> str:
        """Return `pp512`, `tg128 @ d4096`, `pp512+tg128`."""
        parts = [f"{name}{count}" for name, count in (("pp", self.n_prompt), ("tg", self.n_gen)) if count]
        return "+".join(parts) + (f" @ d{self.n_depth}" if self.n_depth else "")

    @property
    def setting(self) -> tuple[tuple[str, Cell], ...]:
        return tuple((name, value) for name, value in self.fields.items() if name not in _OF_THE_TEST)

    @property
    def elapsed_ns(self) -> float:
        """Return the mean time of the repetitions, or the stated mean."""
        if self.samples_ns:
            return statistics.fmean(self.samples_ns)
        return self.number("avg_ns") or (self.n_prompt + self.n_gen) * 1e9 / self.number("avg_ts")

    def integer(self, name: str) -> int:
        return int(self.number(name))

    def number(self, name: str) -> float:
        value = self.fields.get(name)
        return float(value) if isinstance(value, int | float) else 0.0

    def text(self, name: str) -> str:
        value = self.fields.get(name)
        return value if isinstance(value, str) else ""

    @property
    def unknown(self) -> tuple[str, ...]:
        return tuple(name for name in FIELDS if name not in self.fields)

    @property
    def whole(self) -> dict[str, Cell]:
        return {name: self.fields.get(name, default) for name, default in FIELDS.items()}

    @property
    def samples_ts(self) -> tuple[float, ...]:
        return tuple((self.n_prompt + self.n_gen) * 1e9 / each for each in self.samples_ns)

    def named(self, **fields: Cell) -> BenchRow:
        return replace(self, fields={**self.fields, **fields})

    def _check(self, where: str) -> None:
        """Raise BadFile for a row that is not a test or has no time."""
        for name in ("n_prompt", "n_gen"):
            if name not in self.fields:
                raise BadFile(f"{where}: {name} is missing", "pass an unmodified file of llama-bench")
        for name in ("n_prompt", "n_gen", "n_depth"):
            if not 0 <= self.integer(name) < MOST_TOKENS:
                raise BadFile(
                    f"{where}: {name} is {self.integer(name)}, which is not a number of tokens", _HINT
                )
        if not self.n_prompt and not self.n_gen:
            raise BadFile(f"{where}: n_prompt and n_gen are both 0, so nothing was timed", _HINT)
        if not self.samples_ns and self.number("avg_ns") <= 0 and self.number("avg_ts") <= 0:
            raise BadFile(
                f"{where}: there is no time: avg_ns, avg_ts and samples_ns are missing or zero", _HINT
            )
        if self.elapsed_ns < 1:
            raise BadFile(f"{where}: the test took less than a nanosecond", _HINT)


_HINT = "correct the line, or have llama-bench write the file again"


def measured_row(fields: Mapping[str, Cell], samples_ns: Sequence[int]) -> BenchRow:
    """Return the row of a test timed by ggbench, with llama-bench's means of the non-empty `samples_ns`.

    The standard deviation is the sample's, and 0 for a single value, like llama-bench's `stdev`.
    """
    row = BenchRow(dict(fields), tuple(samples_ns))
    n_samples = len(row.samples_ns)
    figures: dict[str, Cell] = {
        "avg_ns": round(statistics.fmean(row.samples_ns)),
        "stddev_ns": round(statistics.stdev(row.samples_ns)) if n_samples > 1 else 0,
        "avg_ts": round(statistics.fmean(row.samples_ts), 6),
        "stddev_ts": round(statistics.stdev(row.samples_ts), 6) if n_samples > 1 else 0.0,
    }
    return row.named(**figures)


def _cell(value: object, kind: type, what: str) -> Cell:
    """Return the value with its type; numbers and switches may be texts. Raises BadFile."""
    if kind is str and isinstance(value, str | int | float):
        return sanitize(str(value)[:_LONGEST_TEXT])
    found: Cell | None = None
    with contextlib.suppress(msgspec.ValidationError, UnicodeEncodeError):
        found = msgspec.convert(int(value) if isinstance(value, bool) else value, kind, strict=False)
    if isinstance(found, bool | int | float) and abs(found) <= _LARGEST[kind]:
        return found
    wanted = {str: "text", float: "a number", int: "a whole number", bool: "true or false"}[kind]
    raise BadFile(f"{what} is {_shown(value)}, expected {wanted}", _HINT)


_Samples = Annotated[
    list[Annotated[int, msgspec.Meta(ge=1, le=_LARGEST_INTEGER)]], msgspec.Meta(max_length=_MOST_SAMPLES)
]
"""Times in ns."""


def _samples(value: object, what: str) -> tuple[int, ...]:
    try:
        return tuple(msgspec.convert(value or [], _Samples))
    except msgspec.ValidationError as error:
        raise BadFile(f"{what} is no list of times: {error}", _HINT) from None


def _shown(value: object) -> str:
    return shorten(repr(value), 40)


def as_json(rows: Sequence[BenchRow]) -> str:
    return json.dumps([_document(row) for row in rows], indent=2) + "\n"


def is_objects(text: str) -> bool:
    return text.lstrip().startswith(("[", "{"))


def read_objects(text: str, name: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the objects of an array or of lines, each with its location. Raises BadFile, naming the line."""
    if text.lstrip().startswith("["):
        found: list[object] = _parse(text, name, 1)
        entries = [(f"{name}, entry {number}", entry) for number, entry in enumerate(found, start=1)]
    else:
        numbered = enumerate(text.splitlines(), start=1)
        lines = ((number, line) for number, line in numbered if line.strip())
        entries = [(f"{name}, line {number}", _parse(line, name, number)) for number, line in lines]
    for where, entry in entries:
        if not isinstance(entry, dict):
            raise BadFile(f"{where}: not a JSON object", _JSON_HINT)
        yield where, entry


_JSON_HINT = "use the tool's unmodified JSON output, without log lines"


def _parse(text: str, name: str, first_line: int) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise BadFile(f"{name}, line {line}, column {error.colno}: {sanitize(error.msg)}", _JSON_HINT) from None
    except (
        ValueError,
        RecursionError,
    ):  # an integer with more digits than Python reads, or a thousand brackets
        raise BadFile(f"{name}, line {first_line}: not JSON as written by a tool", _JSON_HINT) from None


def _document(row: BenchRow) -> dict[str, object]:
    document: dict[str, object] = dict(row.whole)
    if row.samples_ns:
        document |= {"samples_ns": row.samples_ns, "samples_ts": [round(each, 4) for each in row.samples_ts]}
    return document
