"""What the store takes and gives: a run's start, its summary, and its raw samples.

What a run was is columns, so that it can be filtered and survives every version; what came of it is the JSON of a
`records.Row`, which grows with ggbench. A row that this ggbench cannot read is None with the reason, never an error:
the run and its samples are still there.
"""

from __future__ import annotations

import dataclasses
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from ggbench.errors import StoreError
from ggbench.records import Environment, LoadConfig, Outcome, Row

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RUNNING = "running"
"""The state of a run that has not ended; every other state is a value of `records.Outcome`."""

RunKind = Literal["decode", "prefill", "bench", "maxctx", "speed", "quality"]
Phase = Literal["warmup", "decode"]

_Record = TypeVar("_Record")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart:
    """One trial or search of one quant, as it is known before anything is measured."""

    kind: RunKind
    model: str
    quant: str
    file: str
    provenance: str
    """As `records.Row.provenance`: `file`, `twin` or `hub`."""
    file_bytes: int
    header_sha256: str
    """`ModelFile.header_sha256`; empty when unknown."""
    n_params: int
    bpw: float | None
    weight_bytes: int | None
    kv_bytes_per_token: int | None
    command: str
    """The line that reproduces the run."""
    config: LoadConfig
    environment: Environment | None = None
    """None where it is not known, or was written by a version of ggbench that this one cannot read."""

    def as_row(self, outcome: Outcome, reason: str) -> Row:
        """The row of a trial that ended before it measured anything."""
        return Row(
            model=self.model,
            quant=self.quant,
            file=self.file,
            provenance=self.provenance,
            file_bytes=self.file_bytes,
            n_params=self.n_params,
            bpw=self.bpw,
            weight_bytes=self.weight_bytes,
            kv_bytes_per_token=self.kv_bytes_per_token,
            outcome=outcome,
            reason=reason,
            n_ctx=self.config.n_ctx,
            config=self.config,
            header_sha256=self.header_sha256,
            command=self.command,
            environment=self.environment,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run without its samples, as a list shows it."""

    run_id: int
    kind: str
    model: str
    quant: str
    file: str
    provenance: str
    command: str
    state: str
    """`running`, or a value of `records.Outcome`."""
    started_at: str
    """UTC, ISO 8601."""
    finished_at: str | None
    """UTC, ISO 8601; None while running, and for an interrupted run, whose end nobody saw."""
    n_samples: int
    """Decode steps stored, over all repeats, warm-up left out."""
    row: Row | None
    """None for a run that is running or was interrupted, and where `row_error` says why it cannot be read."""
    row_error: str
    """Why a stored row cannot be read by this ggbench; empty when there is nothing wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(RunSummary):
    """A run with all that was known at its start."""

    start: RunStart


@dataclass(frozen=True, slots=True)
class Samples:
    """Raw decode samples of one run, ordered by repeat and position; four arrays of one length, int64."""

    repeat: NDArray[np.int64]
    """Which repetition, as the experiment counted it."""
    position: NDArray[np.int64]
    """Tokens in the KV cache including the one being decoded."""
    step_ns: NDArray[np.int64]
    sample_ns: NDArray[np.int64] | None
    """Time of the sampler; None where it was not timed for every step."""


@dataclass(frozen=True, slots=True)
class PrefillTiming:
    """How long one prompt took."""

    repeat: int
    n_prompt: int
    """Tokens."""
    prefill_ns: int
    warmup: bool


def summary_of(record: sqlite3.Row) -> RunSummary:
    """The summary in a record of the table `runs`."""
    row, row_error = (None, "") if record["outcome_row"] is None else decode(record["outcome_row"], Row)
    return RunSummary(
        run_id=record["id"],
        kind=record["kind"],
        model=record["model"],
        quant=record["quant"],
        file=record["file"],
        provenance=record["provenance"],
        command=record["command"],
        state=record["state"],
        started_at=record["started_at"],
        finished_at=record["finished_at"],
        n_samples=record["n_samples"],
        row=row,
        row_error=row_error,
    )


def run_of(record: sqlite3.Row) -> Run:
    """The run in the same record. Raises StoreError where its load configuration cannot be read."""
    config, reason = decode(record["config"], LoadConfig)
    if config is None:
        raise StoreError(f"the load configuration of run {record['id']} was {reason}", "upgrade ggbench to read it")
    environment = None if record["environment"] is None else decode(record["environment"], Environment)[0]
    summary = summary_of(record)
    known: dict[str, Any] = {field.name: getattr(summary, field.name) for field in dataclasses.fields(summary)}
    columns: dict[str, Any] = {
        field.name: record[field.name]
        for field in dataclasses.fields(RunStart)
        if field.name not in ("config", "environment")
    }
    return Run(**known, start=RunStart(**columns, config=config, environment=environment))


def encode(record: object) -> str:
    """JSON of a frozen record."""
    return msgspec.json.encode(_storable(msgspec.to_builtins(record))).decode()


def decode(text: str, record_type: type[_Record]) -> tuple[_Record | None, str]:
    """The record and "", or None and the reason. Fields that this ggbench does not know are passed over."""
    try:
        return msgspec.json.decode(text, type=record_type), ""
    except msgspec.DecodeError as error:
        return None, f"written by another version of ggbench: {error}"


def storable_text(text: str) -> str:
    r"""Text that UTF-8 can hold: the odd bytes of a Linux file name come as lone surrogates and are spelt `\udc..`."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _storable(value: object) -> object:
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, list | tuple):
        return [_storable(item) for item in value]
    if isinstance(value, dict):
        return {key: _storable(item) for key, item in value.items()}
    return value
