"""The results file: every run with its raw samples and observations, in SQLite.

Samples and observations are committed as they are appended, so a killed process leaves its data so far. Its run is
still marked `running`; the next process that opens or lists the store sees that nobody holds its lock and marks it
`interrupted`. A store belongs to the thread that opened it, and any number of stores may have one file open.
"""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ggbench import paths
from ggbench.engines.endings import Outcome
from ggbench.errors import StoreError, UnknownName
from ggbench.locks import held
from ggbench.runs.run import Run, RunHead
from ggbench.runs.store.connection import as_store_errors, open_connection, writing
from ggbench.runs.store.facts import FactsTable
from ggbench.runs.store.runs import (
    RUNNING,
    WARMUP,
    SampleChunk,
    StoredObservation,
    StoredRun,
    StoredSamples,
    encode,
    storable_text,
    stored_run_of,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_PROCESS = random.random()
"""Recognizes the runs of this process; the column for it once had the time of its start."""
_LARGEST_ID = (1 << 63) - 1
_CHUNKS = (
    "SELECT first_position, at_ns, substr(step_ns, 1, length(step_ns) / 8 * 8),"
    " coalesce(CASE typeof(sampler_ns) WHEN 'blob' THEN substr(sampler_ns, 1, length(sampler_ns) / 8 * 8) END, x'')"
    " FROM samples WHERE run_id = ? AND series = (SELECT series FROM samples WHERE rowid = ?)"
    " AND typeof(first_position) = 'integer' AND typeof(at_ns) = 'integer' AND typeof(step_ns) = 'blob'"
    " AND length(step_ns) >= 8 ORDER BY first_position"
)
"""Whole integers of 8 bytes, which damage may have cut."""
_INT64_BYTES = 8


class Store:
    """An open results file. Every method raises StoreError if the file cannot be read or written."""

    def __init__(self, connection: sqlite3.Connection, path: Path, notices: tuple[str, ...]) -> None:
        self.path = path
        self.notices = notices
        """Notices for the user about the file, e.g. that a damaged one was moved aside."""
        self.facts = FactsTable(connection, path)
        self._connection = connection
        self._unfinished: dict[int, contextlib.ExitStack] = {}
        """The runs in progress of this store, with their locks."""

    @classmethod
    def open(cls, path: Path | None = None) -> Store:
        """Open `path`, by default the user's results file, creating it if missing. Raises like `open_connection`."""
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
        """Close the file; unfinished runs started by this store are marked `interrupted`."""
        try:
            with contextlib.suppress(StoreError):  # the next process to open the file marks them
                self._interrupt(self._unfinished)
        finally:
            for run_id in tuple(self._unfinished):
                self._release(run_id)
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_at_most(self, seconds: float) -> None:
        """Let a write wait this long for another program's."""
        self._connection.execute(f"PRAGMA busy_timeout = {seconds * 1000:.0f}")

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Make all that is read and written here one transaction, which is undone if the block raises."""
        with writing(self._connection, self.path, synced=True):
            yield

    def begin(self, head: RunHead) -> int:
        """Record that a run of this process starts, and return its id; ids are never used twice."""
        columns = _head_columns(head) | {
            "started_at": _utc_now(),
            "owner_pid": os.getpid(),
            "owner_started_at": _PROCESS,
            "state": RUNNING,
        }
        with contextlib.ExitStack() as stack:
            with writing(self._connection, self.path):
                run_id = self._insert("runs", columns)
                lock = self._lock(run_id)
                with contextlib.suppress(
                    OSError
                ):  # on a file system without locks it is soon taken for interrupted
                    lock.touch()
                    stack.callback(lock.unlink, missing_ok=True)
                    stack.enter_context(held(lock))
            self._unfinished[run_id] = stack.pop_all()
        return run_id

    def append_samples(
        self,
        run_id: int,
        series: str,
        first_position: int,
        step_ns: Sequence[int] | NDArray[np.int64],
        sampler_ns: Sequence[int] | NDArray[np.int64] | None = None,
        *,
        at_ns: int = 0,
    ) -> None:
        """Store the steps from `first_position` on, completely or not at all; `at_ns` is the time since the epoch.

        `sampler_ns` is None or empty if the sampler was not timed. Raises ValueError if the two differ in length,
        UnknownName if the run was deleted, and StoreError if the series has a chunk starting at this position.
        """
        chunk = SampleChunk(
            series, first_position, at_ns, tuple(step_ns), () if sampler_ns is None else tuple(sampler_ns)
        )
        with writing(self._connection, self.path):
            self._require(run_id)
            self._append_chunk(run_id, chunk)

    def append_observations(self, run_id: int, observations: Sequence[tuple[int, str, object]]) -> None:
        """Store an observation of a run: nanoseconds since the epoch, kind and record. Raises UnknownName."""
        with writing(self._connection, self.path):
            self._require(run_id)
            self._append_observations(run_id, observations)

    def finish(self, run_id: int, run: Run) -> None:
        """End a run with its outcome, even if another process had marked it interrupted. Raises UnknownName."""
        with writing(self._connection, self.path, synced=True):
            self._require(run_id)
            columns = _head_columns(run.head) | _end_columns(run) | {"finished_at": _utc_now(), "id": run_id}
            assignments = ", ".join(f"{name} = :{name}" for name in columns if name != "id")
            self._connection.execute(f"UPDATE runs SET {assignments} WHERE id = :id", columns)
        self._release(run_id)

    def add(
        self,
        run: Run,
        samples: Iterable[SampleChunk] = (),
        observations: Sequence[tuple[int, str, object]] = (),
    ) -> int:
        """Store a finished run made elsewhere, completely or not at all; return its id here."""
        end_if_unknown = None if run.outcome is Outcome.INTERRUPTED else _utc_now()
        columns = _head_columns(run.head) | _end_columns(run)
        columns |= {
            "started_at": run.head.started_at or _utc_now(),
            "finished_at": run.finished_at or end_if_unknown,
            "owner_pid": 0,
            "owner_started_at": 0.0,
        }
        with writing(self._connection, self.path, synced=True):
            run_id = self._insert("runs", columns)
            for chunk in samples:
                self._append_chunk(run_id, chunk)
            self._append_observations(run_id, observations)
        return run_id

    def list_runs(self, *, model: str | None = None, limit: int = -1) -> tuple[StoredRun, ...]:
        """Return the runs, those of a model if one is given, newest first, without their samples."""
        self._mark_interrupted()
        where = "1" if model is None else "model = :model"
        chosen = f"SELECT id FROM runs WHERE {where} ORDER BY id DESC LIMIT :limit"  # by an index, reading no other run
        records = self._select(
            f"SELECT * FROM runs WHERE id IN ({chosen}) ORDER BY id DESC",
            {"model": storable_text(model or ""), "limit": limit},
        )
        return tuple(stored_run_of(record) for record in records)

    def run_states(self, limit: int) -> tuple[tuple[int, str, int], ...]:
        """Return id, state and `n_samples` of the newest runs, newest first: what changes while a run is stored."""
        self._mark_interrupted()
        sql = "SELECT id, state, n_samples FROM runs ORDER BY id DESC LIMIT ?"
        return tuple(map(tuple, self._select(sql, (limit,))))

    def count_runs(self) -> int:
        """Return the number of runs in every state."""
        return int(self._select("SELECT count(*) FROM runs", ())[0][0])

    def count_of(self, model: str) -> int:
        """Return the number of runs of a MODEL, in every state, by an index."""
        return int(self._select("SELECT count(*) FROM runs WHERE model = ?", (storable_text(model),))[0][0])

    def runs_elsewhere(self) -> tuple[tuple[StoredRun, int], ...]:
        """Return the runs that other processes are measuring, each with the pid that it has for itself."""
        records = self._select("SELECT * FROM runs WHERE state = ? ORDER BY id", (RUNNING,))
        others = [
            record
            for record in records
            if record["owner_started_at"] != _PROCESS and self._is_living(record["id"])
        ]
        return tuple((stored_run_of(record), record["owner_pid"]) for record in others)

    def load_run(self, run_id: int) -> StoredRun:
        self._mark_interrupted()
        return stored_run_of(self._require(run_id))

    def runs_of_kind(self, kind: str) -> Iterator[StoredRun]:
        """Yield the runs of a kind, newest first, each when it is asked for."""
        self._mark_interrupted()
        return self.load_runs(
            [row[0] for row in self._select("SELECT id FROM runs WHERE kind = ? ORDER BY id DESC", (kind,))]
        )

    def load_runs(self, run_ids: Sequence[int]) -> Iterator[StoredRun]:
        """Yield the runs of these ids, each when it is asked for; those deleted meanwhile are left out."""
        for run_id in run_ids:
            for record in self._select("SELECT * FROM runs WHERE id = ?", (run_id,)):
                yield stored_run_of(record)

    def load_samples(self, run_id: int) -> StoredSamples:
        """Return raw samples of a run without warm-up, empty if it has none. Raises UnknownName."""
        import numpy as np

        chunks = [each for each in self.load_chunks(run_id) if not each.series.startswith(WARMUP)]
        lengths: Counter[str] = Counter()
        for each in chunks:
            lengths[each.series] += len(each.step_ns)
        position = [each.first_position + n for each in chunks for n in range(len(each.step_ns))]
        step_ns = [ns for each in chunks for ns in each.step_ns]
        return StoredSamples(dict(lengths), np.array(position, np.int64), np.array(step_ns, np.int64))

    def load_chunks(self, run_id: int) -> Iterator[SampleChunk]:
        """Yield the samples of a run as stored, series in order of their start. Raises UnknownName."""
        for name, row_id in self._series(run_id):
            for first_position, at_ns, step_bytes, sampler_bytes in self._chunks(run_id, row_id):
                yield SampleChunk(name, first_position, at_ns, _int64s(step_bytes), _int64s(sampler_bytes))

    def load_observations(self, run_id: int) -> Iterator[StoredObservation]:
        """Yield the observations of a run, in order. Raises UnknownName."""
        self._require(run_id)
        with as_store_errors(self.path):
            for record in self._connection.execute(
                "SELECT at_ns, kind, body FROM observations WHERE run_id = ? ORDER BY number", (run_id,)
            ):
                yield StoredObservation(*record)

    def delete_run(self, run_id: int) -> None:
        """Delete a run with its samples and observations. Raises UnknownName, and StoreError while it is running."""
        with writing(self._connection, self.path):
            record = self._require(run_id)
            if record["state"] == RUNNING and self._is_living(run_id):
                raise StoreError(
                    f"run {run_id} is still running in process {record['owner_pid']}", "stop it first"
                )
            self._connection.execute("DELETE FROM runs WHERE id = ?", (run_id,))

    def _append_chunk(self, run_id: int, chunk: SampleChunk) -> None:
        n_steps = len(chunk.step_ns)
        if chunk.sampler_ns and len(chunk.sampler_ns) != n_steps:
            raise ValueError(f"{n_steps} steps but {len(chunk.sampler_ns)} sampler timings")
        if not n_steps:
            return
        columns = {
            "run_id": run_id,
            "series": chunk.series,
            "first_position": chunk.first_position,
            "at_ns": chunk.at_ns,
            "step_ns": _int64_bytes(chunk.step_ns),
            "sampler_ns": _int64_bytes(chunk.sampler_ns) if chunk.sampler_ns else None,
        }
        self._insert("samples", columns)
        if not chunk.series.startswith(WARMUP):
            self._connection.execute(
                "UPDATE runs SET n_samples = n_samples + ? WHERE id = ?", (n_steps, run_id)
            )

    def _append_observations(self, run_id: int, observations: Sequence[tuple[int, str, object]]) -> None:
        first = self._connection.execute(
            "SELECT coalesce(max(number), -1) + 1 FROM observations WHERE run_id = ?", (run_id,)
        ).fetchone()[0]
        rows = [
            (run_id, number, at_ns, kind, encode(body))
            for number, (at_ns, kind, body) in enumerate(observations, start=first)
        ]
        self._connection.executemany("INSERT INTO observations VALUES (?, ?, ?, ?, ?)", rows)

    def _insert(self, table: str, columns: Mapping[str, object]) -> int:
        names, values = ", ".join(columns), ", ".join(f":{name}" for name in columns)
        row_id = self._connection.execute(f"INSERT INTO {table} ({names}) VALUES ({values})", columns).lastrowid
        assert row_id is not None
        return row_id

    def _mark_interrupted(self) -> None:
        running = self._select("SELECT id FROM runs WHERE state = ?", (RUNNING,))
        with contextlib.suppress(StoreError):  # a full disk must not prevent reading the results
            self._interrupt(record["id"] for record in running if not self._is_living(record["id"]))

    def _lock(self, run_id: int) -> Path:
        """Return the file that the process holds which measures a run: a pid says nothing in another container."""
        return self.path.with_name(f"{self.path.name}-run-{run_id}")

    def _is_living(self, run_id: int) -> bool:
        lock = self._lock(run_id)
        try:
            with held(lock):
                lock.unlink()  # of a killed process
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def _release(self, run_id: int) -> None:
        if run_id in self._unfinished:
            self._unfinished.pop(run_id).close()

    def _interrupt(self, run_ids: Iterable[int]) -> None:
        changes = [(Outcome.INTERRUPTED.value, run_id, RUNNING) for run_id in run_ids]
        if changes:
            with writing(self._connection, self.path):
                self._connection.executemany("UPDATE runs SET state = ? WHERE id = ? AND state = ?", changes)

    def _series(self, run_id: int) -> list[tuple[str, int]]:
        """Return the name of each series and its first row, in order of their start."""
        self._require(run_id)
        sql = "SELECT series, min(rowid) FROM samples WHERE run_id = ? AND typeof(series) = 'text' GROUP BY series"
        return [(name, row_id) for name, row_id in self._select(f"{sql} ORDER BY 2", (run_id,))]

    def _chunks(self, run_id: int, row_id: int) -> Iterator[sqlite3.Row]:
        """Yield first position, time and the bytes of both blobs of each undamaged chunk of the series of a row."""
        with as_store_errors(self.path):
            # `yield from` would close the cursor, even after the store
            for record in self._connection.execute(_CHUNKS, (run_id, row_id)):  # noqa: UP028
                yield record

    def _require(self, run_id: int) -> sqlite3.Row:
        holds_id = abs(run_id) <= _LARGEST_ID
        records = self._select("SELECT * FROM runs WHERE id = ?", (run_id,)) if holds_id else []
        if not records:
            raise UnknownName("run", str(run_id), (), "`ggbench results` lists the runs there are")
        return records[0]

    def _select(self, sql: str, parameters: Sequence[object] | dict[str, object]) -> list[sqlite3.Row]:
        with as_store_errors(self.path):
            return self._connection.execute(sql, parameters).fetchall()


def _utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _head_columns(head: RunHead) -> dict[str, object]:
    return {
        "kind": head.kind,
        "engine": head.setup.engine,
        "model": storable_text(head.subject.model),
        "quant": storable_text(head.subject.quant),
        "source": head.subject.source,
        "subject": encode(head.subject),
        "setup": encode(head.setup),
        "settings": encode(head.settings),
        "environment": None if head.environment is None else encode(head.environment),
        "command": storable_text(head.command),
    }


def _end_columns(run: Run) -> dict[str, object]:
    return {
        "state": run.outcome.value,
        "reason": storable_text(run.reason),
        "memory": encode(run.memory),
        "gpu_use": None if run.gpu_use is None else encode(run.gpu_use),
        "result": None if run.result is None else encode(run.result),
    }


def _int64_bytes(values: Sequence[int] | NDArray[np.int64]) -> bytes:
    import numpy as np

    return np.asarray(values, dtype="<i8").tobytes()


def _int64s(blob: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(blob) // _INT64_BYTES}q", blob)
