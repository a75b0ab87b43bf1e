"""Version 4 of the results file: runs as composed records, samples in named series, and observations of any kind.

Rewrites what versions 1 to 3 kept. Everything here is of the formats as they were: it uses no record of ggbench, since
those change with time and a migration must not.
"""

from __future__ import annotations

import json
import shlex
import sqlite3
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

_TABLES = (
    """
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        kind TEXT NOT NULL,
        engine TEXT NOT NULL,
        model TEXT NOT NULL,
        quant TEXT NOT NULL,
        source TEXT NOT NULL,
        subject TEXT NOT NULL,
        setup TEXT NOT NULL,
        settings TEXT NOT NULL,
        environment TEXT,
        command TEXT NOT NULL,
        started_at TEXT NOT NULL,
        finished_at TEXT,
        owner_pid INTEGER NOT NULL,
        owner_started_at REAL NOT NULL,
        state TEXT NOT NULL,
        reason TEXT NOT NULL DEFAULT '',
        n_samples INTEGER NOT NULL DEFAULT 0,
        memory TEXT,
        gpu_use TEXT,
        result TEXT
    )
    """,
    "CREATE INDEX runs_by_model ON runs (model, quant, id)",
    "CREATE INDEX runs_by_kind ON runs (kind, id)",
    "CREATE INDEX runs_running ON runs (id) WHERE state = 'running'",
    """
    CREATE TABLE samples (
        run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        series TEXT NOT NULL,
        first_position INTEGER NOT NULL,
        at_ns INTEGER NOT NULL,
        step_ns BLOB NOT NULL CHECK (length(step_ns) % 8 = 0),
        sample_ns BLOB CHECK (length(sample_ns) = length(step_ns)),
        UNIQUE (run_id, series, first_position)
    )
    """,
    """
    CREATE TABLE observations (
        run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        number INTEGER NOT NULL,
        at_ns INTEGER NOT NULL,
        kind TEXT NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (run_id, number)
    )
    """,
)
_OLD_TABLES = ("sample_chunks", "prefills", "readings", "probes", "runs_before")
_KEPT_COLUMNS = (
    "id", "model", "quant", "environment", "command", "started_at", "finished_at", "owner_pid", "owner_started_at",
    "state", "n_samples",
)  # fmt: skip
_N_PROMPT = 25
_Fields = Mapping[str, Any]


def compose_runs(connection: sqlite3.Connection) -> None:
    """Version 4: JSON columns for subject, setup, settings, memory and result; `samples` and `observations`."""
    connection.execute("DROP INDEX runs_by_model")
    connection.execute("DROP INDEX runs_running")
    connection.execute("ALTER TABLE runs RENAME TO runs_before")
    last_id = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'runs_before'").fetchone()
    for statement in _TABLES:
        connection.execute(statement)
    for record in _records(connection, "SELECT * FROM runs_before ORDER BY id"):
        _copy_run(connection, record)
    connection.execute("DELETE FROM sqlite_sequence WHERE name = 'runs'")
    if last_id is not None:
        newest = connection.execute("SELECT coalesce(max(id), 0) FROM runs").fetchone()[0]
        connection.execute("INSERT INTO sqlite_sequence VALUES ('runs', ?)", (max(newest, last_id[0]),))
    for record in _records(connection, "SELECT * FROM runs_before WHERE kind != 'maxctx' ORDER BY id"):
        _copy_search_of_bench(connection, record)
    for table in _OLD_TABLES:
        connection.execute(f"DROP TABLE {table}")


def _copy_run(connection: sqlite3.Connection, record: _Fields) -> None:
    """One run with its samples and what was observed of it, under its id."""
    row = _object(record["outcome_row"])
    found = _object(record["certificate"])
    kind = "decode" if record["kind"] == "bench" else record["kind"]
    outcome = row if found is None else found
    columns = {name: record[name] for name in _KEPT_COLUMNS} | {
        "kind": kind,
        "engine": "llama",
        "source": record["provenance"],
        "subject": json.dumps(_subject(record, found)),
        "setup": record["config"],
        "settings": json.dumps(_SETTINGS.get(kind, _decode_settings)(connection, record, outcome or {})),
        "reason": "" if outcome is None else _text(outcome.get("reason")),
        "memory": None if outcome is None else json.dumps(_memory(outcome)),
        "gpu_use": None if row is None or row.get("gpu_use") is None else json.dumps(row["gpu_use"]),
        "result": None if outcome is None else json.dumps(_RESULTS.get(kind, _decode_result)(outcome)),
    }
    names = ", ".join(columns)
    connection.execute(f"INSERT INTO runs ({names}) VALUES ({', '.join(f':{name}' for name in columns)})", columns)
    _copy_samples(connection, record["id"])
    _copy_observations(connection, record["id"])


def _copy_samples(connection: sqlite3.Connection, run_id: int) -> None:
    """A repetition is a series; warm-up is one of its own."""
    connection.execute(
        "INSERT INTO samples (run_id, series, first_position, at_ns, step_ns, sample_ns)"
        " SELECT run_id, phase || '/p' || (SELECT min(first_position) - 1 FROM sample_chunks AS c WHERE c.run_id = ?1)"
        " || '/b1/r' || repeat, first_position, 0, step_ns, sample_ns FROM sample_chunks WHERE run_id = ?1"
        " ORDER BY phase DESC, repeat, first_position",
        (run_id,),
    )


def _copy_observations(connection: sqlite3.Connection, run_id: int) -> None:
    """Prompts, probes and readings, in this order; what was a warm-up prompt stays out, as it counted for nothing."""
    prompts = _records(connection, "SELECT * FROM prefills WHERE run_id = ? AND NOT warmup ORDER BY id", run_id)
    bodies = [
        (0, "prompt_timing", json.dumps({"n_prompt": each["n_prompt"], "elapsed_ns": each["prefill_ns"], "n_seqs": 1}))
        for each in prompts
    ]
    probes = _records(connection, "SELECT * FROM probes WHERE run_id = ? ORDER BY number", run_id)
    bodies += [(0, "probe", each["probe"]) for each in probes]
    readings = _records(connection, "SELECT * FROM readings WHERE run_id = ? ORDER BY at_ns, id", run_id)
    bodies += [(each["at_ns"], "machine_reading", each["reading"]) for each in readings]
    connection.executemany(
        "INSERT INTO observations VALUES (?, ?, ?, ?, ?)",
        [(run_id, number, *body) for number, body in enumerate(bodies)],
    )


def _copy_search_of_bench(connection: sqlite3.Connection, record: _Fields) -> None:
    """The largest context that a row of a bench had, as a search of its own where the store has none of it."""
    row = _object(record["outcome_row"])
    if row is None or row.get("max_n_ctx") is None:
        return
    known = connection.execute(
        "SELECT 1 FROM runs WHERE kind = 'maxctx' AND model = ? AND quant = ?"
        " AND json_extract(result, '$.max_n_ctx') = ?",
        (record["model"], record["quant"], row["max_n_ctx"]),
    ).fetchone()
    if known is not None:
        return
    config = _object(record["config"])
    setup = (
        record["config"] if config is None else json.dumps(config | {"n_ctx": None})
    )  # a search's n_ctx is its ceiling
    result = {"max_n_ctx": row["max_n_ctx"], "verified_by_decode": bool(row.get("max_n_ctx_verified"))}
    connection.execute(
        "INSERT INTO runs (kind, engine, model, quant, source, subject, setup, settings, environment, command,"
        " started_at, finished_at, owner_pid, owner_started_at, state, reason, memory, result)"
        " SELECT 'maxctx', engine, model, quant, source, subject, ?, '{}', environment, '', started_at,"
        " finished_at, owner_pid, owner_started_at, 'completed', ?, NULL, ? FROM runs WHERE id = ?",
        (setup, _text(row.get("max_n_ctx_reason")), json.dumps(result), record["id"]),
    )


def _subject(record: _Fields, found: _Fields | None) -> dict[str, Any]:
    names = ("model", "quant", "file", "file_bytes", "header_sha256", "n_params", "bpw", "weight_bytes")
    subject = {name: record[name] for name in (*names, "kv_bytes_per_token")}
    return subject | {"source": record["provenance"], "n_ctx_train": (found or {}).get("n_ctx_train")}


def _decode_settings(_: sqlite3.Connection, record: _Fields, outcome: _Fields) -> dict[str, Any]:
    """What was asked for, which no version before this one kept: from the command that reproduces the run."""
    words = _options(record["command"])
    n_gen = _whole(words.get("-n"), 0) or outcome.get("n_gen") or record["n_samples"] or 1
    n_prompt, repeat = outcome.get("n_prompt") or _N_PROMPT, _whole(words.get("--repeat"), 1)
    return {"n_gen": n_gen, "n_prompt": n_prompt, "repeat": repeat, "n_warmup": 8}


def _prefill_settings(connection: sqlite3.Connection, record: _Fields, _: _Fields) -> dict[str, Any]:
    words = _options(record["command"])
    lengths = [_whole(part, 0) for part in (words.get("--lengths") or "").split(",")]
    timed = connection.execute("SELECT DISTINCT n_prompt FROM prefills WHERE run_id = ?", (record["id"],))
    known = [length for length in lengths if length > 0] or [each[0] for each in timed] or [1]
    return {"lengths": known, "repeat": _whole(words.get("--repeat"), 1)}


def _search_settings(_: sqlite3.Connection, record: _Fields, outcome: _Fields) -> dict[str, Any]:
    words = _options(record["command"])
    reserve_bytes = outcome.get("reserve_bytes") if "--reserve" in words else None
    return {"prove": "--no-prove" not in words, "cap_train": "--cap-train" in words, "reserve_bytes": reserve_bytes}


def _memory(outcome: _Fields) -> dict[str, Any]:
    """The record of memory that a row or a certificate had; the place of a buffer by its name, which was all it had."""
    known = (each for each in _list(outcome.get("buffers")) if isinstance(each, dict))
    buffers = [each | {"place": _place(str(each.get("device")))} for each in known]
    names = ("n_batch", "n_ubatch", "flash_attn", "peak_bytes", "other_bytes")
    n_ctx = outcome.get("n_ctx", outcome.get("max_n_ctx"))
    return {"buffers": buffers, "n_ctx": n_ctx} | {name: outcome.get(name) for name in names}


def _place(device: str) -> str:
    return "host" if device.startswith(("CPU", "AMX")) or device.endswith("_Host") else "gpu"


def _decode_result(outcome: _Fields) -> dict[str, Any]:
    names = ("prefill_ms", "fit", "latency", "limit")
    counts = {"n_prompt": outcome.get("n_prompt") or _N_PROMPT, "n_gen": outcome.get("n_gen") or 0}
    return counts | {name: outcome.get(name) for name in names} | {"unsteady": outcome.get("unsteady") or ""}


def _prefill_result(outcome: _Fields) -> dict[str, Any]:
    return {"prefills": outcome.get("prefills") or [], "limit": outcome.get("limit")}


def _search_result(outcome: _Fields) -> dict[str, Any]:
    names = ("planned_n_ctx", "theory_n_ctx", "ceiling_n_ctx", "budget_bytes", "free_bytes")
    plan = {name: outcome.get(name) for name in names}
    plan |= {"reserve_bytes": outcome.get("reserve_bytes") or 0, "warnings": []}
    return {
        "plan": plan | {"gpu_processes": outcome.get("gpu_processes") or []},
        "max_n_ctx": outcome.get("max_n_ctx"),
        "first_fail_n_ctx": outcome.get("first_fail_n_ctx"),
        "verified_by_decode": bool(outcome.get("verified_by_decode")),
        "probes": outcome.get("probes") or [],
        "warnings": outcome.get("warnings") or [],
    }


_SETTINGS = {"prefill": _prefill_settings, "maxctx": _search_settings}
_RESULTS = {"prefill": _prefill_result, "maxctx": _search_result}
"""By kind; those of a decode for any other."""


def _options(command: str) -> dict[str, str]:
    """The value after each word that begins with a dash."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    return {word: following for word, following in pairwise([*words, ""]) if word.startswith("-")}


def _whole(text: str | None, default: int) -> int:
    return int(text) if text and text.isdigit() else default


def _object(text: str | None) -> dict[str, Any] | None:
    """The object in a JSON column; None where there is none, or a newer ggbench wrote something else."""
    try:
        value = None if text is None else json.loads(text, parse_constant=_no_number)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _text(value: object) -> str:
    """Text that SQLite can hold; empty for anything else."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else ""


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _no_number(_: str) -> None:
    """In place of NaN and infinities, which Python reads and SQLite does not."""


def _records(connection: sqlite3.Connection, sql: str, *parameters: object) -> Iterator[dict[str, Any]]:
    """Every record as a dict, whatever the connection's row factory, read whole before the next statement."""
    cursor = connection.execute(sql, parameters)
    names = [column[0] for column in cursor.description]
    yield from [dict(zip(names, values, strict=True)) for values in cursor.fetchall()]
