"""A row of llama-bench: its fields in their order, each with its type, read strictly and written whole.

Source: `test::get_fields` and `test::get_field_type` of llama.cpp's tools/llama-bench/llama-bench.cpp.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from ggbench.errors import BadFile
from ggbench.machine.records import Cell, ImportedRow
from ggbench.text import sanitize, shorten

TOOL = "llama-bench"
MOST_TOKENS = 1 << 31
"""Positions are signed 32-bit integers in llama.cpp."""

_MOST_SAMPLES = 100_000
_LONGEST_TEXT = 4096
_LARGEST_INTEGER = (1 << 63) - 1
"""Of SQLite."""


class FieldType(enum.Enum):
    """What a field holds."""

    STRING = enum.auto()
    BOOL = enum.auto()
    INT = enum.auto()
    FLOAT = enum.auto()


_TEXT, _BOOL, _INT, _FLOAT = FieldType.STRING, FieldType.BOOL, FieldType.INT, FieldType.FLOAT

FIELDS: dict[str, tuple[FieldType, Cell]] = {
    "build_commit": (_TEXT, "unknown"), "build_number": (_INT, 0), "cpu_info": (_TEXT, ""), "gpu_info": (_TEXT, ""),
    "backends": (_TEXT, ""), "model_filename": (_TEXT, ""), "model_type": (_TEXT, ""), "model_size": (_INT, 0),
    "model_n_params": (_INT, 0), "n_batch": (_INT, 2048), "n_ubatch": (_INT, 512), "n_threads": (_INT, 0),
    "cpu_mask": (_TEXT, "0x0"), "cpu_strict": (_BOOL, False), "poll": (_INT, 50), "type_k": (_TEXT, "f16"),
    "type_v": (_TEXT, "f16"), "n_gpu_layers": (_INT, -1), "n_cpu_moe": (_INT, 0), "split_mode": (_TEXT, "layer"),
    "main_gpu": (_INT, 0), "no_kv_offload": (_BOOL, False), "flash_attn": (_INT, -1), "devices": (_TEXT, "auto"),
    "tensor_split": (_TEXT, "0.00"), "tensor_buft_overrides": (_TEXT, "none"), "load_mode": (_TEXT, "auto"),
    "lazy_mode": (_TEXT, "auto"), "embeddings": (_BOOL, False), "no_op_offload": (_INT, 0), "no_host": (_BOOL, False),
    "repack": (_BOOL, True), "fit_target": (_INT, 0), "fit_min_ctx": (_INT, 0), "n_prompt": (_INT, 0),
    "n_gen": (_INT, 0), "n_depth": (_INT, 0), "test_time": (_TEXT, ""), "avg_ns": (_INT, 0), "stddev_ns": (_INT, 0),
    "avg_ts": (_FLOAT, 0.0), "stddev_ts": (_FLOAT, 0.0),
}  # fmt: skip
"""Every field in llama-bench's order, with its type and llama-bench's default, or what stands there for unknown: a
row without a key, or with null in it, joins with no other in `compare-llama-bench.py`."""

_OF_THE_TEST = frozenset(
    ("n_prompt", "n_gen", "n_depth", "test_time", "avg_ns", "stddev_ns", "avg_ts", "stddev_ts")
)  # fmt: skip
_OLDER = {"use_mmap": _BOOL}
"""Fields of older llama-bench that say how a model was loaded."""


class BenchRow(msgspec.Struct, frozen=True):
    """One test with its figures."""

    fields: dict[str, Cell]
    """Those that are known, by their names."""
    samples_ns: tuple[int, ...] = ()
    """Time of each repetition; empty where only their mean is known."""

    @classmethod
    def of(cls, raw: Mapping[str, object], where: str) -> BenchRow:
        """Return the row of these raw fields; unknown ones are left out.

        Raises BadFile, naming `where` and the field, for one that is missing or invalid.
        """
        types = {name: kind for name, (kind, _) in FIELDS.items()} | _OLDER
        fields = {
            name: _cell(raw[name], kind, f"{where}: {name}")
            for name, kind in types.items()
            if raw.get(name) is not None
        }
        row = cls(fields, _samples(raw.get("samples_ns"), f"{where}: samples_ns"))
        row._check(where)
        return row

    @classmethod
    def from_record(cls, record: ImportedRow) -> BenchRow:
        """Return the row that a run has kept."""
        fields = dict(record.fields)
        samples = fields.pop("samples_ns", None)
        return cls(fields, tuple(int(each) for each in samples) if isinstance(samples, list) else ())

    @property
    def record(self) -> ImportedRow:
        """The row as a run keeps it."""
        return ImportedRow(TOOL, {**self.fields, "samples_ns": list(self.samples_ns)})

    @property
    def n_prompt(self) -> int:
        """Tokens of prompt that are timed."""
        return self.integer("n_prompt")

    @property
    def n_gen(self) -> int:
        """Tokens generated that are timed."""
        return self.integer("n_gen")

    @property
    def n_depth(self) -> int:
        """Tokens in the cache before."""
        return self.integer("n_depth")

    @property
    def test(self) -> str:
        """`pp512`, `tg128 @ d4096`, `pp512+tg128`."""
        parts = [f"{name}{count}" for name, count in (("pp", self.n_prompt), ("tg", self.n_gen)) if count]
        return "+".join(parts) + (f" @ d{self.n_depth}" if self.n_depth else "")

    @property
    def setting(self) -> tuple[tuple[str, Cell], ...]:
        """All that is no part of the test: rows of one model, machine and setup have it in common."""
        return tuple((name, value) for name, value in self.fields.items() if name not in _OF_THE_TEST)

    @property
    def elapsed_ns(self) -> float:
        """Mean time of the test, from the repetitions, else from what the row says."""
        if self.samples_ns:
            return sum(self.samples_ns) / len(self.samples_ns)
        stated = self.fields.get("avg_ns")
        if isinstance(stated, int) and stated > 0:
            return float(stated)
        return (self.n_prompt + self.n_gen) * 1e9 / self.number("avg_ts")

    def integer(self, name: str) -> int:
        """Return a whole number; 0 where it is unknown."""
        value = self.fields.get(name)
        return int(value) if isinstance(value, int | float) else 0

    def number(self, name: str) -> float:
        """Return a number; 0 where it is unknown."""
        value = self.fields.get(name)
        return float(value) if isinstance(value, int | float) else 0.0

    def text(self, name: str) -> str:
        """Return a text; empty where it is unknown."""
        value = self.fields.get(name)
        return value if isinstance(value, str) else ""

    def flag(self, name: str) -> bool | None:
        """Return a switch; None where it is unknown."""
        value = self.fields.get(name)
        return value if isinstance(value, bool) else None

    @property
    def unknown(self) -> tuple[str, ...]:
        """Fields that are written with llama-bench's default, since the row does not have them."""
        return tuple(name for name in FIELDS if name not in self.fields)

    @property
    def whole(self) -> dict[str, Cell]:
        """Every field in llama-bench's order."""
        return {name: self.fields.get(name, default) for name, (_, default) in FIELDS.items()}

    @property
    def samples_ts(self) -> tuple[float, ...]:
        """Tokens per second of each repetition."""
        return tuple((self.n_prompt + self.n_gen) * 1e9 / each for each in self.samples_ns)

    def named(self, **fields: Cell) -> BenchRow:
        """Return the row with other fields."""
        return replace(self, fields={**self.fields, **fields})

    def _check(self, where: str) -> None:
        """Raise BadFile for what is no test, or has no time."""
        for name in ("n_prompt", "n_gen"):
            if name not in self.fields:
                raise BadFile(f"{where}: there is no {name}", "give a file that llama-bench wrote")
        for name in ("n_prompt", "n_gen", "n_depth"):
            if not 0 <= self.integer(name) < MOST_TOKENS:
                raise BadFile(f"{where}: {name} is {self.integer(name)}, which is not a number of tokens", _HINT)
        if not self.n_prompt and not self.n_gen:
            raise BadFile(f"{where}: n_prompt and n_gen are both 0, so nothing was timed", _HINT)
        if not self.samples_ns and self.number("avg_ns") <= 0 and self.number("avg_ts") <= 0:
            raise BadFile(f"{where}: there is no time: avg_ns, avg_ts and samples_ns are missing or zero", _HINT)
        if self.elapsed_ns < 1:
            raise BadFile(f"{where}: the test took less than a nanosecond", _HINT)


def cell_text(value: Cell) -> str:
    """Return a value as llama-bench writes it in CSV and SQL: switches as 0 and 1, fractions with six digits."""
    if isinstance(value, bool):
        return str(int(value))
    return f"{value:.6f}" if isinstance(value, float) else str(value)


_HINT = "correct the line, or have llama-bench write the file again"


def measured_row(fields: Mapping[str, Cell], samples_ns: Sequence[int]) -> BenchRow:
    """Return the row of a test that ggbench timed, with llama-bench's means; `samples_ns` has at least one.

    The standard deviation is that of a sample, 0 of one alone, as `stdev` of llama-bench has it.
    """
    row = BenchRow(dict(fields), tuple(samples_ns))
    mean_ns, deviation_ns = _moments(row.samples_ns)
    mean_ts, deviation_ts = _moments(row.samples_ts)
    figures: dict[str, Cell] = {"avg_ns": round(mean_ns), "stddev_ns": round(deviation_ns)}
    figures |= {"avg_ts": round(mean_ts, 6), "stddev_ts": round(deviation_ts, 6)}
    return row.named(**figures)


def _moments(values: Sequence[float]) -> tuple[float, float]:
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1) if len(values) > 1 else 0.0
    return mean, math.sqrt(variance)


def _cell(value: object, kind: FieldType, what: str) -> Cell:
    """The value as its type; numbers and switches may come as text, as in CSV and SQL. Raises BadFile."""
    if kind is _TEXT:
        if isinstance(value, str | int | float):
            return sanitize(str(value)[:_LONGEST_TEXT])
        raise BadFile(f"{what} is {_shown(value)}, which is not text", _HINT)
    try:
        if isinstance(value, bool):
            return value if kind is _BOOL else int(value)
        if kind is _FLOAT:
            number = float(value) if isinstance(value, int | float | str) else math.nan
            if math.isfinite(number):
                return number
        if kind is _INT and isinstance(value, str | int) and abs(int(value)) <= _LARGEST_INTEGER:
            return int(value)
        if kind is _BOOL and value in (0, 1, "0", "1", "true", "false"):
            return value in (1, "1", "true")
    except ValueError:
        pass
    wanted = {_FLOAT: "number", _INT: "whole number", _BOOL: "switch"}[kind]
    raise BadFile(f"{what} is {_shown(value)}, which is not a {wanted}", _HINT)


def _samples(value: object, what: str) -> tuple[int, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > _MOST_SAMPLES:
        raise BadFile(f"{what} is {_shown(value)}, which is not a list of times", _HINT)
    for each in value:
        if isinstance(each, bool) or not isinstance(each, int) or not 0 < each <= _LARGEST_INTEGER:
            raise BadFile(f"{what} has {_shown(each)}, which is not a time in ns", _HINT)
    return tuple(value)


def _shown(value: object) -> str:
    return shorten(repr(value), 40)
