"""Version 4 of the results file: runs as composed records, samples in named series, and observations of any kind.

Converts what versions 1 to 3 kept. Everything here is of the formats as they were: it uses no record of ggbench, since
those change with time and a migration must not.
"""

from __future__ import annotations

import json
import shlex
import sqlite3
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

_SCHEMA = (
    """CREATE TABLE runs (
        id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, engine TEXT NOT NULL, model TEXT NOT NULL,
        quant TEXT NOT NULL, source TEXT NOT NULL, subject TEXT NOT NULL, setup TEXT NOT NULL, settings TEXT NOT NULL,
        environment TEXT, command TEXT NOT NULL, started_at TEXT NOT NULL, finished_at TEXT,
        owner_pid INTEGER NOT NULL, owner_started_at REAL NOT NULL, state TEXT NOT NULL,
        reason TEXT NOT NULL DEFAULT '', n_samples INTEGER NOT NULL DEFAULT 0, memory TEXT, gpu_use TEXT, result TEXT
    )""",
    "CREATE INDEX runs_by_model ON runs (model, quant, id)",
    "CREATE INDEX runs_by_kind ON runs (kind, id)",
    "CREATE INDEX runs_running ON runs (id) WHERE state = 'running'",
    """CREATE TABLE samples (
        run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE, series TEXT NOT NULL,
        first_position INTEGER NOT NULL, at_ns INTEGER NOT NULL,
        step_ns BLOB NOT NULL CHECK (length(step_ns) % 8 = 0),
        sample_ns BLOB CHECK (length(sample_ns) = length(step_ns)),
        UNIQUE (run_id, series, first_position)
    )""",
    """CREATE TABLE observations (
        run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE, number INTEGER NOT NULL,
        at_ns INTEGER NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (run_id, number)
    )""",
)
"""`subject` to `environment`, `memory` to `result` and `body` are JSON of records. Times of day are UTC in ISO 8601,
`owner_started_at` is in seconds and `at_ns` in nanoseconds since the epoch. `step_ns` and `sample_ns` are int64
little-endian, one value for each position from `first_position` on; `sample_ns` is NULL where the sampler was not
timed. `n_samples` counts the steps without warm-up, so that a list need not read them."""

_COPIED_COLUMNS = (
    "id", "model", "quant", "environment", "command", "started_at", "finished_at", "owner_pid", "owner_started_at",
    "state", "n_samples",
)  # fmt: skip
_N_PROMPT = 25
_Fields = Mapping[str, Any]


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables of version 4 in a file without any."""
    for statement in _SCHEMA:
        connection.execute(statement)


def convert_to_version_4(connection: sqlite3.Connection, version: int) -> None:
    """Replace the tables of version 1, 2 or 3.

    `runs` had the JSON columns `config`, `environment`, `outcome_row` and, since version 3, `certificate`. Beside it
    were `sample_chunks` and `prefills`, since version 2 `readings`, and since version 3 `probes`.
    """
    if version < 2:
        connection.execute("CREATE TABLE readings (id, run_id, at_ns, reading)")
    if version < 3:
        connection.execute("CREATE TABLE probes (run_id, number, probe)")
        connection.execute("ALTER TABLE runs ADD COLUMN certificate TEXT")
    connection.execute("DROP INDEX runs_by_model")
    connection.execute("DROP INDEX runs_running")
    connection.execute("ALTER TABLE runs RENAME TO runs_before")
    create_tables(connection)
    runs = connection.execute("SELECT * FROM runs_before ORDER BY id").fetchall()
    for run in runs:
        _copy_run(connection, run)
    connection.execute(_COPY_SAMPLES)
    connection.execute(_COPY_OBSERVATIONS)
    # Ids are never used twice, those of deleted runs neither.
    connection.execute("DELETE FROM sqlite_sequence WHERE name = 'runs'")
    connection.execute("UPDATE sqlite_sequence SET name = 'runs' WHERE name = 'runs_before'")
    for run in runs:
        _copy_search_of_bench(connection, run)
    for table in ("sample_chunks", "prefills", "readings", "probes", "runs_before"):
        connection.execute(f"DROP TABLE {table}")


_COPY_SAMPLES = """
    INSERT INTO samples (run_id, series, first_position, at_ns, step_ns, sample_ns)
    SELECT run_id, phase || '/p' || (min(first_position) OVER (PARTITION BY run_id) - 1) || '/b1/r' || repeat,
        first_position, 0, step_ns, sample_ns
    FROM sample_chunks WHERE run_id IN (SELECT id FROM runs) ORDER BY run_id, phase DESC, repeat, first_position"""
"""A repetition is a series; warm-up is one of its own."""

_COPY_OBSERVATIONS = """
    INSERT INTO observations
    SELECT run_id, row_number() OVER (PARTITION BY run_id ORDER BY part, at_ns, number) - 1, at_ns, kind, body
    FROM (
        SELECT 1 AS part, run_id, id AS number, 0 AS at_ns, 'prompt_timing' AS kind,
            json_object('n_prompt', n_prompt, 'elapsed_ns', prefill_ns, 'n_seqs', 1) AS body
        FROM prefills WHERE NOT warmup
        UNION ALL SELECT 2, run_id, number, 0, 'probe', probe FROM probes
        UNION ALL SELECT 3, run_id, id, at_ns, 'machine_reading', reading FROM readings
    ) WHERE run_id IN (SELECT id FROM runs)"""
"""Prompts, probes and readings, in this order; a warm-up prompt is left out, as it counted for nothing."""


def _copy_run(connection: sqlite3.Connection, record: _Fields) -> None:
    row = _object(record["outcome_row"])
    found = _object(record["certificate"])
    kind = "decode" if record["kind"] == "bench" else record["kind"]
    outcome = row if found is None else found
    gpu_use = None if row is None else row.get("gpu_use")
    columns = {name: record[name] for name in _COPIED_COLUMNS} | {
        "kind": kind,
        "engine": "llama",
        "source": record["provenance"],
        "subject": json.dumps(_subject(record, found or {})),
        "setup": record["config"],
        "settings": json.dumps(_SETTINGS.get(kind, _decode_settings)(connection, record, outcome or {})),
        "reason": "" if outcome is None else _text(outcome.get("reason")),
        "memory": None if outcome is None else json.dumps(_memory(outcome)),
        "gpu_use": None if gpu_use is None else json.dumps(gpu_use),
        "result": None if outcome is None else json.dumps(_RESULTS.get(kind, _decode_result)(outcome)),
    }
    names, values = ", ".join(columns), ", ".join(f":{name}" for name in columns)
    connection.execute(f"INSERT INTO runs ({names}) VALUES ({values})", columns)


def _copy_search_of_bench(connection: sqlite3.Connection, record: _Fields) -> None:
    """Store the largest context that a row of a bench had as a search, if none found it; `n_ctx` is its ceiling."""
    row = _object(record["outcome_row"]) or {}
    if record["kind"] == "maxctx" or row.get("max_n_ctx") is None:
        return
    result = {"max_n_ctx": row["max_n_ctx"], "verified_by_decode": bool(row.get("max_n_ctx_verified"))}
    connection.execute(
        """
        INSERT INTO runs (kind, engine, model, quant, source, subject, setup, settings, environment, command,
            started_at, finished_at, owner_pid, owner_started_at, state, reason, result)
        SELECT 'maxctx', engine, model, quant, source, subject,
            CASE WHEN json_valid(setup) THEN json_set(setup, '$.n_ctx', NULL) ELSE setup END, '{}', environment, '',
            started_at, finished_at, owner_pid, owner_started_at, 'completed', :reason, :result
        FROM runs AS bench WHERE id = :id AND NOT EXISTS (
            SELECT 1 FROM runs WHERE kind = 'maxctx' AND model = bench.model AND quant = bench.quant
                AND json_extract(result, '$.max_n_ctx') = json_extract(:result, '$.max_n_ctx'))
        """,
        {"id": record["id"], "reason": _text(row.get("max_n_ctx_reason")), "result": json.dumps(result)},
    )


def _subject(record: _Fields, found: _Fields) -> dict[str, Any]:
    names = ("model", "quant", "file", "file_bytes", "header_sha256", "n_params", "bpw", "weight_bytes")
    subject = {name: record[name] for name in (*names, "kv_bytes_per_token")}
    return subject | {"source": record["provenance"], "n_ctx_train": found.get("n_ctx_train")}


def _decode_settings(_: sqlite3.Connection, record: _Fields, outcome: _Fields) -> dict[str, Any]:
    """Return what was asked for, which no version before 4 stored: from the command that reproduces the run."""
    words = _options(record["command"])
    n_gen = _whole(words.get("-n"), 0) or outcome.get("n_gen") or record["n_samples"] or 1
    n_prompt, repeat = outcome.get("n_prompt") or _N_PROMPT, _whole(words.get("--repeat"), 1)
    return {"n_gen": n_gen, "n_prompt": n_prompt, "repeat": repeat, "n_warmup": 8}


def _prefill_settings(connection: sqlite3.Connection, record: _Fields, _: _Fields) -> dict[str, Any]:
    words = _options(record["command"])
    lengths = [_whole(part, 0) for part in words.get("--lengths", "").split(",")]
    timed = connection.execute("SELECT DISTINCT n_prompt FROM prefills WHERE run_id = ?", (record["id"],))
    known = [length for length in lengths if length > 0] or [each[0] for each in timed] or [1]
    return {"lengths": known, "repeat": _whole(words.get("--repeat"), 1)}


def _search_settings(_: sqlite3.Connection, record: _Fields, outcome: _Fields) -> dict[str, Any]:
    words = _options(record["command"])
    reserve_bytes = outcome.get("reserve_bytes") if "--reserve" in words else None
    return {"prove": "--no-prove" not in words, "cap_train": "--cap-train" in words, "reserve_bytes": reserve_bytes}


def _memory(outcome: _Fields) -> dict[str, Any]:
    """Return the record of memory of a row or a certificate; a buffer's place follows from its name, all it had."""
    stored = outcome.get("buffers")
    known = [each for each in stored if isinstance(each, dict)] if isinstance(stored, list) else []
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
    plan = ("planned_n_ctx", "theory_n_ctx", "ceiling_n_ctx", "budget_bytes", "free_bytes")
    lists = {name: outcome.get(name) or [] for name in ("gpu_processes", "probes", "warnings")}
    return {
        "plan": {name: outcome.get(name) for name in plan}
        | {"reserve_bytes": outcome.get("reserve_bytes") or 0, "warnings": []}
        | {"gpu_processes": lists.pop("gpu_processes")},
        "max_n_ctx": outcome.get("max_n_ctx"),
        "first_fail_n_ctx": outcome.get("first_fail_n_ctx"),
        "verified_by_decode": bool(outcome.get("verified_by_decode")),
        **lists,
    }


_SETTINGS = {"prefill": _prefill_settings, "maxctx": _search_settings}
_RESULTS = {"prefill": _prefill_result, "maxctx": _search_result}
"""By kind; those of a decode for any other."""


def _options(command: str) -> dict[str, str]:
    """Return the word after each word that begins with a dash."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    return {word: following for word, following in pairwise([*words, ""]) if word.startswith("-")}


def _whole(text: str | None, default: int) -> int:
    return int(text) if text and text.isdigit() else default


def _object(text: str | None) -> dict[str, Any] | None:
    """Return the object in a JSON column, null in place of NaN, which SQLite does not read; None for anything else."""
    try:
        value = None if text is None else json.loads(text, parse_constant=lambda _: None)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _text(value: object) -> str:
    """Return text that SQLite can hold; empty for anything else."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else ""
