"""The results file: every run with its raw samples, probes and readings of the machine, in SQLite.

Samples and probes are committed as they are appended, so a process that is killed leaves what it had. Its run still
says `running`; whoever opens or lists the store next sees that the owner is gone and marks it `interrupted`. A store
belongs to the thread that opened it, and any number of stores may have one file open.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ggbench import paths
from ggbench.errors import StoreError, UnknownName
from ggbench.machine_records import MachineReading
from ggbench.records import Certificate, Outcome, Probe, Row
from ggbench.store import owners
from ggbench.store.connection import as_store_errors, open_connection, writing
from ggbench.store.runs import (
    RUNNING,
    Phase,
    PrefillTiming,
    Run,
    RunStart,
    RunSummary,
    Samples,
    decode,
    encode,
    run_of,
    storable_text,
    summary_of,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LARGEST_ID = (1 << 63) - 1


class Store:
    """One open results file. Every method raises StoreError where the file cannot be read or written."""

    def __init__(self, connection: sqlite3.Connection, path: Path, notices: tuple[str, ...]) -> None:
        self.path = path
        self.notices = notices
        """What a person has to be told about the file, such as that a damaged one was moved aside."""
        self._connection = connection
        self._unfinished: set[int] = set()

    @classmethod
    def open(cls, path: Path | None = None) -> Store:
        """Open `path`, or the person's own results file, making it where there is none.

        Raises StoreError where the file is a newer ggbench's or another program's, or cannot be written.
        """
        path = path or paths.results_file()
        connection, notices = open_connection(path)
        store = cls(connection, path, notices)
        try:
            store._mark_interrupted()
        except BaseException:
            connection.close()
            raise
        return store

    def close(self) -> None:
        """Close the file; a run that this store began and nobody finished is marked `interrupted`."""
        try:
            with contextlib.suppress(StoreError):  # the next to open the file marks them
                self._interrupt(self._unfinished)
        finally:
            self._unfinished.clear()
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def begin(self, start: RunStart) -> int:
        """Note that a run of this process starts, and return its id; ids are never used twice."""
        owner = owners.this_process()
        columns: dict[str, object] = {
            field.name: getattr(start, field.name)
            for field in dataclasses.fields(start)
            if field.name not in ("config", "environment")
        }
        columns = {name: storable_text(value) if isinstance(value, str) else value for name, value in columns.items()}
        columns |= {
            "config": encode(start.config),
            "environment": None if start.environment is None else encode(start.environment),
            "started_at": _utc_now(),
            "owner_pid": owner.pid,
            "owner_started_at": owner.started_at,
            "state": RUNNING,
        }
        names, values = ", ".join(columns), ", ".join(f":{name}" for name in columns)
        with writing(self._connection, self.path):
            run_id = self._connection.execute(f"INSERT INTO runs ({names}) VALUES ({values})", columns).lastrowid
        assert run_id is not None
        self._unfinished.add(run_id)
        return run_id

    def append_samples(
        self,
        run_id: int,
        repeat: int,
        first_position: int,
        step_ns: Sequence[int] | NDArray[np.int64],
        sample_ns: Sequence[int] | NDArray[np.int64] | None = None,
        *,
        phase: Phase = "decode",
    ) -> None:
        """Store the steps at `first_position` and the positions after it, whole or not at all.

        `sample_ns` is None where the sampler was not timed. Raises ValueError where the two differ in length,
        UnknownName where the run was deleted, and StoreError where it has a chunk that begins at this position.
        """
        if sample_ns is not None and len(sample_ns) != len(step_ns):
            raise ValueError(f"{len(step_ns)} steps but {len(sample_ns)} sampler timings")
        if not len(step_ns):
            return
        chunk = (_int64_bytes(step_ns), None if sample_ns is None else _int64_bytes(sample_ns))
        with writing(self._connection, self.path):
            self._require(run_id)
            self._connection.execute(
                "INSERT INTO sample_chunks (run_id, phase, repeat, first_position, step_ns, sample_ns)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (run_id, phase, repeat, first_position, *chunk),
            )
            if phase == "decode":
                self._connection.execute(
                    "UPDATE runs SET n_samples = n_samples + ? WHERE id = ?", (len(step_ns), run_id)
                )

    def append_prefill(self, run_id: int, repeat: int, n_prompt: int, prefill_ns: int, *, warmup: bool = False) -> None:
        """Store how long a prompt of `n_prompt` tokens took. Raises UnknownName."""
        with writing(self._connection, self.path):
            self._require(run_id)
            self._connection.execute(
                "INSERT INTO prefills (run_id, repeat, n_prompt, prefill_ns, warmup) VALUES (?, ?, ?, ?, ?)",
                (run_id, repeat, n_prompt, prefill_ns, warmup),
            )

    def append_readings(self, run_id: int, readings: Sequence[MachineReading]) -> None:
        """Store what the machine did beside a run. Raises UnknownName."""
        with writing(self._connection, self.path):
            self._require(run_id)
            self._connection.executemany(
                "INSERT INTO readings (run_id, at_ns, reading) VALUES (?, ?, ?)",
                [(run_id, reading.at_ns, encode(reading)) for reading in readings],
            )

    def append_probe(self, run_id: int, number: int, probe: Probe) -> None:
        """Store the answer to one question of a search; `number` counts from 0. Raises UnknownName."""
        with writing(self._connection, self.path):
            self._require(run_id)
            self._connection.execute(
                "INSERT INTO probes (run_id, number, probe) VALUES (?, ?, ?)", (run_id, number, encode(probe))
            )

    def finish(self, run_id: int, row: Row, certificate: Certificate | None = None) -> Row:
        """End a run with what came of it; returns the row as stored, which knows its run. Raises UnknownName.

        A search has a certificate beside the row that lists show. The run's state becomes the row's outcome, also where
        another process had taken it for interrupted, as one in another container may that does not see this one.
        """
        row = dataclasses.replace(row, run_id=run_id)
        certified = None if certificate is None else encode(dataclasses.replace(certificate, run_id=run_id))
        with writing(self._connection, self.path):
            self._require(run_id)
            self._connection.execute(
                "UPDATE runs SET state = ?, finished_at = ?, outcome_row = ?, certificate = ? WHERE id = ?",
                (row.outcome.value, _utc_now(), encode(row), certified, run_id),
            )
        self._unfinished.discard(run_id)
        return row

    def list_runs(
        self,
        *,
        model: str | None = None,
        quant: str | None = None,
        kind: str | None = None,
        state: str | None = None,
        limit: int | None = None,
    ) -> tuple[RunSummary, ...]:
        """Runs that match every filter given, newest first, without their samples."""
        self._mark_interrupted()
        given = {"model": model, "quant": quant, "kind": kind, "state": state}
        filters = {name: value for name, value in given.items() if value is not None}
        where = " AND ".join(f"{name} = :{name}" for name in filters) or "1"
        records = self._select(
            f"SELECT * FROM runs WHERE {where} ORDER BY id DESC LIMIT :limit",
            {**filters, "limit": -1 if limit is None else limit},
        )
        return tuple(summary_of(record) for record in records)

    def load_run(self, run_id: int) -> Run:
        """A run with all that was known at its start. Raises UnknownName."""
        self._mark_interrupted()
        return run_of(self._require(run_id))

    def load_samples(self, run_id: int, phase: Phase = "decode") -> Samples:
        """Raw samples of a run, of no length where it has none. Raises UnknownName."""
        import numpy as np

        self._require(run_id)
        chunks = self._select(
            "SELECT repeat, first_position, step_ns, sample_ns FROM sample_chunks"
            " WHERE run_id = ? AND phase = ? ORDER BY repeat, first_position",
            (run_id, phase),
        )
        lengths = [len(chunk["step_ns"]) // 8 for chunk in chunks]
        starts = np.array([chunk["first_position"] for chunk in chunks], dtype=np.int64)
        index_in_chunk = np.concatenate([np.arange(0), *(np.arange(length) for length in lengths)])
        untimed = any(chunk["sample_ns"] is None for chunk in chunks)
        return Samples(
            repeat=np.repeat(np.array([chunk["repeat"] for chunk in chunks], dtype=np.int64), lengths),
            position=np.repeat(starts, lengths) + index_in_chunk,
            step_ns=_int64_array(b"".join(chunk["step_ns"] for chunk in chunks)),
            sample_ns=None if untimed else _int64_array(b"".join(chunk["sample_ns"] for chunk in chunks)),
        )

    def load_prefills(self, run_id: int) -> tuple[PrefillTiming, ...]:
        """Prefill timings of a run in the order they were taken, warm-ups among them. Raises UnknownName."""
        self._require(run_id)
        records = self._select("SELECT * FROM prefills WHERE run_id = ? ORDER BY id", (run_id,))
        return tuple(
            PrefillTiming(record["repeat"], record["n_prompt"], record["prefill_ns"], bool(record["warmup"]))
            for record in records
        )

    def load_readings(self, run_id: int) -> tuple[MachineReading, ...]:
        """Readings of a run by rising time, those left out that this ggbench cannot read. Raises UnknownName."""
        self._require(run_id)
        records = self._select("SELECT reading FROM readings WHERE run_id = ? ORDER BY at_ns, id", (run_id,))
        readings = (decode(record["reading"], MachineReading)[0] for record in records)
        return tuple(reading for reading in readings if reading is not None)

    def load_probes(self, run_id: int) -> tuple[Probe, ...]:
        """What a search asked so far, those left out that this ggbench cannot read. Raises UnknownName."""
        self._require(run_id)
        records = self._select("SELECT probe FROM probes WHERE run_id = ? ORDER BY number", (run_id,))
        probes = (decode(record["probe"], Probe)[0] for record in records)
        return tuple(probe for probe in probes if probe is not None)

    def load_certificate(self, run_id: int) -> tuple[Certificate | None, str]:
        """What a search ended with, and ""; None where it has not, or why it cannot be read. Raises UnknownName."""
        text = self._require(run_id)["certificate"]
        return (None, "") if text is None else decode(text, Certificate)

    def delete_run(self, run_id: int) -> None:
        """Delete a run with what it has. Raises UnknownName, and StoreError while its process still runs it."""
        with writing(self._connection, self.path):
            record = self._require(run_id)
            owner = _owner(record)
            if record["state"] == RUNNING and owners.is_alive(owner):
                raise StoreError(f"run {run_id} is still running in process {owner.pid}", "stop it first")
            self._connection.execute("DELETE FROM runs WHERE id = ?", (run_id,))

    def _mark_interrupted(self) -> None:
        running = self._select("SELECT id, owner_pid, owner_started_at FROM runs WHERE state = ?", (RUNNING,))
        with contextlib.suppress(StoreError):  # a full disk must not keep a person from reading the results
            self._interrupt(record["id"] for record in running if not owners.is_alive(_owner(record)))

    def _interrupt(self, run_ids: Iterable[int]) -> None:
        changes = [(Outcome.INTERRUPTED.value, run_id, RUNNING) for run_id in run_ids]
        if changes:
            with writing(self._connection, self.path):
                self._connection.executemany("UPDATE runs SET state = ? WHERE id = ? AND state = ?", changes)

    def _require(self, run_id: int) -> sqlite3.Row:
        holds_id = abs(run_id) <= _LARGEST_ID
        records = self._select("SELECT * FROM runs WHERE id = ?", (run_id,)) if holds_id else []
        if not records:
            raise UnknownName("run", str(run_id), (), "`ggbench results` lists the runs there are")
        return records[0]

    def _select(self, sql: str, parameters: Sequence[object] | dict[str, object]) -> list[sqlite3.Row]:
        with as_store_errors(self.path):
            return self._connection.execute(sql, parameters).fetchall()


def _owner(record: sqlite3.Row) -> owners.Owner:
    return owners.Owner(record["owner_pid"], record["owner_started_at"])


def _utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _int64_bytes(values: Sequence[int] | NDArray[np.int64]) -> bytes:
    import numpy as np

    return np.asarray(values, dtype="<i8").tobytes()


def _int64_array(blob: bytes) -> NDArray[np.int64]:
    import numpy as np

    return np.frombuffer(blob, dtype="<i8").astype(np.int64)
