"""Runs as stored: the records common to all kinds, and those of the kind as unparsed JSON.

The types of setup, settings and result belong to engines and experiments, which the store does not know;
`ggbench.runs.stored` reads them.
"""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ggbench.engines.events import Memory
from ggbench.errors import UsageError
from ggbench.machine.records import Environment, GpuUse
from ggbench.models.subject import Subject
from ggbench.record import Record

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_Record = TypeVar("_Record")

RUNNING = "running"
"""The state of a run in progress; every other state is a value of `Outcome`."""

WARMUP = "warmup/"
"""Series with this prefix are stored but do not count."""


class StoredRun(Record, kw_only=True):
    """A run without its samples and observations."""

    run_id: int
    kind: str
    engine: str
    state: str
    """`running`, or a value of `Outcome`."""
    reason: str
    subject: Subject
    command: str
    started_at: str
    """UTC, ISO 8601."""
    finished_at: str | None
    """UTC, ISO 8601; None while running, and for an interrupted run, whose end is unknown."""
    n_samples: int
    """Number of stored timed steps over all series, without warm-up."""
    environment: Environment | None
    memory: Memory | None
    """None for a run of this ggbench that has not ended."""
    gpu_use: GpuUse | None
    setup_json: str
    settings_json: str
    result_json: str | None
    """None for a run that has not ended, or that measured nothing."""

    @property
    def is_imported(self) -> bool:
        return self.environment is not None and self.environment.imported is not None

    @property
    def is_finished(self) -> bool:
        """Whether the run itself stored its outcome."""
        return self.finished_at is not None


class StoredSamples(Record):
    """Raw samples of one run, one series after the other; two arrays of equal length."""

    lengths: dict[str, int]
    """Number of samples of each series, such as `decode/p25/b1/r0`, in order of their start."""
    position: NDArray[np.int64]
    """Tokens in the KV cache including the one being decoded."""
    step_ns: NDArray[np.int64]


class SampleChunk(Record):
    """Consecutive steps of one series, as stored."""

    series: str
    first_position: int
    at_ns: int
    """Time of storing since the epoch, just after the last step; 0 if unknown."""
    step_ns: tuple[int, ...]
    sampler_ns: tuple[int, ...]
    """Empty if the sampler was not timed."""


class StoredObservation(Record):
    """An observation with its unparsed body."""

    at_ns: int
    """Since the epoch; 0 if unknown."""
    kind: str
    """The record's `ggbench.runs.recording.kind_of`."""
    body_json: str


_TEXT_COLUMNS = ("kind", "engine", "state", "reason", "command", "started_at")


def stored_run_of(record: sqlite3.Row) -> StoredRun:
    """Return the run in a row of the table `runs`; a column emptied by damage becomes an empty text, or unknown."""
    subject, _ = decode(record["subject"], Subject)
    model, quant, source = (_text(record[name]) for name in ("model", "quant", "source"))
    n_samples, finished_at, result = record["n_samples"], record["finished_at"], record["result"]
    return StoredRun(
        **{name: _text(record[name]) for name in _TEXT_COLUMNS},
        n_samples=n_samples if isinstance(n_samples, int) else 0,
        finished_at=_text(finished_at) or None,
        run_id=record["id"],
        subject=subject or Subject(model=model, quant=quant, source=source),
        environment=_read(record["environment"], Environment),
        memory=_read(record["memory"], Memory),
        gpu_use=_read(record["gpu_use"], GpuUse),
        setup_json=_text(record["setup"]),
        settings_json=_text(record["settings"]),
        result_json=_text(result) or None,
    )


def utc_text(text: str) -> str:
    """Return an ISO time in UTC, as in the store; empty if it is none, or before 1970 or after 2200."""
    try:
        moment = datetime.fromisoformat(text)
        moment = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return ""
    return moment.isoformat(timespec="seconds") if 1970 <= moment.year <= 2200 else ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _read(text: str | None, record_type: type[_Record]) -> _Record | None:
    return None if text is None else decode(text, record_type)[0]


def encode(record: object) -> str:
    return msgspec.json.encode(_storable(msgspec.to_builtins(record))).decode()


def decode(text: str, record_type: type[_Record]) -> tuple[_Record | None, str]:
    """Return the record and "", or None and the reason. Fields unknown to this ggbench are skipped."""
    try:
        return msgspec.json.decode(text, type=record_type), ""
    except (msgspec.DecodeError, TypeError, ValueError, ArithmeticError, UsageError) as error:
        return None, f"written by another version of ggbench: {error}"


def storable_text(text: str) -> str:
    r"""Return text encodable in UTF-8: invalid bytes in a Linux file name are lone surrogates, written as `\udc..`."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _storable(value: object) -> object:
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, list | tuple):
        return [_storable(item) for item in value]
    if isinstance(value, dict):
        return {key: _storable(item) for key, item in value.items()}
    return value
