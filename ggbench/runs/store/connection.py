"""A connection to the results file that copes with a damaged file, a full disk or another busy ggbench.

Results cost hours of a machine's time, so no code here deletes or overwrites a file with results.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from ggbench.errors import StoreError
from ggbench.files import make_folders, sync_folder
from ggbench.locks import held, wait_for

APPLICATION_ID = 0x6767626E
"""`ggbn` in ASCII."""

VERSION = 6

_TABLES = (
    """CREATE TABLE runs (
        id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, engine TEXT NOT NULL, model TEXT NOT NULL,
        quant TEXT NOT NULL, source TEXT NOT NULL, subject TEXT NOT NULL, setup TEXT NOT NULL, settings TEXT NOT NULL,
        environment TEXT, command TEXT NOT NULL, started_at TEXT NOT NULL, finished_at TEXT,
        owner_pid INTEGER NOT NULL, owner_started_at REAL NOT NULL, state TEXT NOT NULL,
        reason TEXT NOT NULL DEFAULT '', n_samples INTEGER NOT NULL DEFAULT 0, memory TEXT, gpu_use TEXT, result TEXT
    )""",
    "CREATE INDEX runs_by_model ON runs (model, quant, kind, state, id, source, started_at)",
    "CREATE INDEX runs_by_kind ON runs (kind, id)",
    "CREATE INDEX runs_running ON runs (id) WHERE state = 'running'",
    """CREATE TABLE samples (
        run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE, series TEXT NOT NULL,
        first_position INTEGER NOT NULL, at_ns INTEGER NOT NULL,
        step_ns BLOB NOT NULL CHECK (length(step_ns) % 8 = 0),
        sampler_ns BLOB CHECK (length(sampler_ns) = length(step_ns)),
        UNIQUE (run_id, series, first_position)
    )""",
    """CREATE TABLE observations (
        run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE, number INTEGER NOT NULL,
        at_ns INTEGER NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (run_id, number)
    )""",
)
"""`subject` to `environment`, `memory` to `result` and `body` are JSON of records. Times of day are UTC in ISO 8601,
`owner_started_at` is in seconds since the boot and `at_ns` in nanoseconds since the epoch. `step_ns` and `sampler_ns`
are int64 little-endian, one value per position from `first_position` on; `sampler_ns` is NULL if the sampler was not
timed. `n_samples` counts the steps without warm-up, so that lists need not read them."""

BUSY_TIMEOUT_S = 10.0
"""How long a write waits for another program's."""
_OPENING_LIMIT_S = 30.0
_MAGIC = b"SQLite format 3\0"
_SIBLINGS = ("-wal", "-shm", "-journal")


def open_connection(path: Path) -> tuple[sqlite3.Connection, tuple[str, ...]]:
    """Open or create the results file; also return notices for the user.

    A damaged file is moved aside and a new one created; one that cannot be written is opened read-only. Raises
    StoreError, leaving the file unchanged, if it has another version or is another program's, if the folder or the disk
    cannot be written, or if the file system cannot lock files.
    """
    try:
        make_folders(path.parent)
        with _opening_alone(path.parent), as_store_errors(path):
            if not _starts_as_sqlite(path):
                return _start_afresh(path)
            try:
                return _connect(path), ()
            except UnicodeDecodeError:
                return _start_afresh(path)
            except sqlite3.DatabaseError as error:
                match primary_code(error):
                    case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
                        return _start_afresh(path)
                    case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY if (
                        path.is_file() and path.stat().st_size
                    ):
                        return _open_read_only(path)
                raise
    except OSError as error:
        raise StoreError(
            f"cannot open the results file {path}: {error.strerror}", _writable_hint(path)
        ) from error


@contextlib.contextmanager
def writing(connection: sqlite3.Connection, path: Path, *, synced: bool = False) -> Iterator[None]:
    """Run one transaction, which takes the write lock at its start and is undone if the block raises. Raises
    StoreError.

    A power cut loses nothing up to the end of a `synced` one. Inside another it is a part of that.
    """
    is_part = connection.in_transaction
    if is_part:
        yield
        return
    with as_store_errors(path):
        # FULL flushes the write-ahead log at a commit, NORMAL only before a checkpoint: a kill loses nothing either
        # way, and appending samples does not wait for the disk.
        connection.execute(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")
        _begin(connection, path)
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            if (
                connection.in_transaction
            ):  # SQLite has already rolled back after some errors, such as a full disk
                connection.execute("ROLLBACK")
            raise


def _begin(connection: sqlite3.Connection, path: Path) -> None:
    """Take the write lock; raises sqlite3.Error if another program keeps it."""

    def begins() -> bool:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if primary_code(error) != sqlite3.SQLITE_BUSY:
                raise
        return connection.in_transaction

    with _without_waiting(connection) as limit_s:
        if not wait_for(begins, f"another program that writes {path}", limit_s=limit_s, pause_s=0.02):
            connection.execute("BEGIN IMMEDIATE")


@contextlib.contextmanager
def _without_waiting(connection: sqlite3.Connection) -> Iterator[float]:
    """Have SQLite not wait for another program, as it does so without a word; yield the seconds that it would."""
    (limit_ms,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        yield limit_ms / 1e3
    finally:
        connection.execute(f"PRAGMA busy_timeout = {limit_ms}")


@contextlib.contextmanager
def as_store_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into a StoreError that says what to do; errors of misuse pass unchanged."""
    try:
        yield
    except sqlite3.ProgrammingError:
        raise
    except UnicodeDecodeError as error:  # SQLite's own message quotes a damaged schema
        found = sqlite3.DatabaseError(str(error))
        found.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise _store_error(path, found) from error
    except sqlite3.Error as error:
        raise _store_error(path, error) from error


def _store_error(path: Path, error: sqlite3.Error) -> StoreError:
    match primary_code(error):
        case sqlite3.SQLITE_FULL:
            what, hint = f"the disk is full; {path} cannot grow", "free some space; stored runs are kept"
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            what, hint = f"cannot write the results file {path}: {error}", _writable_hint(path)
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            what = f"another program keeps {path} locked"
            hint = (
                "try again when it has finished; on a network file system, point XDG_DATA_HOME at a local disk"
            )
        case sqlite3.SQLITE_IOERR:
            what = f"reading or writing {path} failed: {error}"
            hint = "check the disk, its quota and its free space; a network file system may not lock files"
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            what = f"the results file {path} is damaged: {error}"
            hint = f"`sqlite3 {path} .recover` may recover its contents; move it away to start a new one"
        case _:
            what, hint = f"the results file {path} cannot be used: {error}", "move it away to start a new one"
    return StoreError(what, hint)


def is_of_record(error: StoreError) -> bool:
    """Return whether SQLite refuses a record for what it is, and would again."""
    return isinstance(error.__cause__, sqlite3.IntegrityError | sqlite3.DataError)


def primary_code(error: sqlite3.Error) -> int:
    """Return SQLite's code of an error without its extension."""
    code = getattr(error, "sqlite_errorcode", None)  # absent if the sqlite3 module itself raised
    return code & 0xFF if isinstance(code, int) else sqlite3.SQLITE_ERROR


def _writable_hint(path: Path) -> str:
    return f"make {path.parent} a writable folder, or point XDG_DATA_HOME at one"


@contextlib.contextmanager
def _opening_alone(folder: Path) -> Iterator[None]:
    """Prevent two ggbench from both finding a damaged file, and the second from moving the first one's new file.

    Raises StoreError if another takes too long.
    """
    with contextlib.ExitStack() as stack:

        def enter() -> bool:
            try:
                stack.enter_context(held(folder))
            except BlockingIOError:
                return False
            except OSError:  # some network file systems cannot lock a folder: the race then remains
                return True
            return True

        if not wait_for(enter, f"another program that holds {folder}", limit_s=_OPENING_LIMIT_S, pause_s=0.02):
            what = f"another program has held {folder} for {_OPENING_LIMIT_S:.0f} s"
            raise StoreError(what, "end it, or point XDG_DATA_HOME at another folder")
        yield


_KNOWN_FILES: set[tuple[int, int]] = set()
"""Device and inode of every file opened in SQLite by this process."""


def _starts_as_sqlite(path: Path) -> bool:
    """Return whether SQLite may open the file: it treats missing and empty files as new databases.

    A file that this process has open in SQLite is not opened again here: closing any descriptor of a file drops every
    POSIX lock that the process has on it, and another process would then delete the write-ahead log in use. Source:
    SQLite's "How To Corrupt An SQLite Database File", section 2.2.
    """
    try:
        status = path.stat()
        if (status.st_dev, status.st_ino) in _KNOWN_FILES:
            return True
        with path.open("rb") as file:
            start = file.read(len(_MAGIC))
    except FileNotFoundError:
        return True
    return start in (b"", _MAGIC)


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Open a file so that SQLite writes nothing. Raises sqlite3.Error, also for a missing file.

    SQLite reads a file with a write-ahead log only if it may create files next to it; `immutable` needs no such files,
    and is correct without a log. Source: https://sqlite.org/wal.html#read_only_databases.
    """
    has_log = Path(f"{path}-wal").exists()
    mode = "mode=ro" if has_log else "mode=ro&immutable=1"
    connection = sqlite3.connect(f"file:{quote(str(path))}?{mode}", uri=True, isolation_level=None)
    connection.row_factory = sqlite3.Row
    connection.text_factory = _text_of
    return connection


def _open_read_only(path: Path) -> tuple[sqlite3.Connection, tuple[str, ...]]:
    """Open a file that cannot be written, as in a read-only home."""
    connection = connect_to_read(path)
    try:
        if is_empty(connection, path):
            raise StoreError(f"{path} has no tables and cannot be written", _writable_hint(path))
    except BaseException:
        connection.close()
        raise
    return connection, (f"{path} cannot be written: stored runs can be read, but new ones are not kept",)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    try:
        connection.row_factory = sqlite3.Row
        connection.text_factory = _text_of
        if is_empty(connection, path):
            with writing(connection, path):
                create_tables(connection)
        connection.execute("PRAGMA foreign_keys = ON")
        for table in ("runs", "samples", "observations"):
            connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone()
        _require_log(connection)  # after what finds damage, so that a damaged file is kept as it is
        status = path.stat()
        _KNOWN_FILES.add((status.st_dev, status.st_ino))
    except BaseException:
        connection.close()
        raise
    return connection


def _require_log(connection: sqlite3.Connection) -> None:
    """Have readers not block a writer: a kill between making the tables and this, or a copy, leaves another mode."""
    with _without_waiting(connection):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if primary_code(error) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise  # else in use: at another opening


def _text_of(raw: bytes) -> str:
    """Decode a column's text, even if damage left bytes that are not UTF-8."""
    return raw.decode("utf-8", "replace")


def is_empty(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether the file has no tables yet. Raises StoreError if its tables are not this ggbench's."""
    version, is_foreign = identify(connection)
    if is_foreign:
        raise StoreError(
            f"{path} is a database of another program", "move it away; ggbench will create its own"
        )
    if version > VERSION:
        raise StoreError(
            f"{path} was written by a newer ggbench (store version {version}, this one knows {VERSION})",
            "upgrade ggbench; the file was left unchanged",
        )
    if version not in (0, VERSION):
        raise StoreError(
            f"{path} was written by a ggbench before its first release (store version {version}, not {VERSION})",
            "move it away; ggbench will create a new one",
        )
    return version == 0


def _start_afresh(path: Path) -> tuple[sqlite3.Connection, tuple[str, ...]]:
    kept = _move_aside(path)
    notice = f"the results file was damaged; it is kept as {kept}, and a new one was started"
    return _connect(path), (notice,)


def _move_aside(path: Path) -> Path:
    """Rename the file and its siblings by the time; the database last, so that a kill halfway repeats it."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    target = path.with_name(f"{path.stem}.broken-{stamp}{path.suffix}")
    for sibling in (*_SIBLINGS, ""):
        source = Path(f"{path}{sibling}")
        if source.exists():
            source.rename(f"{target}{sibling}")
            sync_folder(path.parent)
    return target


def create_tables(connection: sqlite3.Connection) -> None:
    for statement in _TABLES:
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def identify(connection: sqlite3.Connection) -> tuple[int, bool]:
    """Return the file's version, 0 for an empty one, and whether it is the database of another program."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    is_empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    return (0 if is_empty else version), application_id != APPLICATION_ID and not is_empty
