"""llama-bench's `-o sql`: statements for SQLite, and what `sqlite3 FILE .dump` makes of such a database.

Nothing is executed: the statements are read by their form, whatever else a file may hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from ggbench.errors import BadFile
from ggbench.formats.bench_row import FIELDS, BenchRow, FieldType, cell_text
from ggbench.text import plain, shorten

TABLE = "llama_bench"

_TYPES = {FieldType.STRING: "TEXT", FieldType.BOOL: "INTEGER", FieldType.INT: "INTEGER", FieldType.FLOAT: "REAL"}
_CREATE = re.compile(rf'CREATE TABLE (?:IF NOT EXISTS )?"?{TABLE}"?\s*\(([^)]*)\)', re.IGNORECASE)
_INSERT = re.compile(rf'\s*INSERT INTO "?{TABLE}"?\s*(?:\(([^)]*)\))?\s*VALUES\s*\(', re.IGNORECASE)
_VALUE = re.compile(r"\s*(?:'((?:[^']|'')*)'|(NULL)|([-+0-9.eE]+))\s*(,|\))", re.IGNORECASE)


def as_sql(rows: Sequence[BenchRow]) -> str:
    """Return the table and a statement for each row; quotes in a text are doubled, which llama-bench omits."""
    columns = ",\n".join(f"  {name} {_TYPES[kind]}" for name, (kind, _) in FIELDS.items())
    statements = [f"CREATE TABLE IF NOT EXISTS {TABLE} (\n{columns}\n);\n\n"]
    for row in rows:
        values = ", ".join("'" + plain(cell_text(value)).replace("'", "''") + "'" for value in row.whole.values())
        statements.append(f"INSERT INTO {TABLE} ({', '.join(FIELDS)}) VALUES ({values});\n")
    return "".join(statements)


def is_sql(text: str) -> bool:
    """Whether it creates the table, or puts rows into it."""
    return _CREATE.search(text) is not None or any(_INSERT.match(line) for line in text.splitlines())


def read_statements(text: str, name: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the fields of each row, with where it stands. Raises BadFile, naming the line.

    Where a statement does not name the columns, their order is that of CREATE TABLE.
    """
    created = _CREATE.search(text)
    order = [part.split()[0] for part in created[1].split(",") if part.split()] if created else list(FIELDS)
    for number, line in enumerate(text.splitlines(), start=1):
        found = _INSERT.match(line)
        if found is None:
            continue
        where = f"{name}, line {number}"
        columns = [part.strip(' "') for part in found[1].split(",")] if found[1] else order
        values = list(_values(line, found.end(), where))
        if len(values) != len(columns):
            raise BadFile(f"{where}: it has {len(values)} values for {len(columns)} columns", _HINT)
        yield where, dict(zip(columns, values, strict=True))


_HINT = "give the file as llama-bench or `sqlite3 FILE .dump` wrote it"


def _values(line: str, start: int, where: str) -> Iterator[str | None]:
    while True:
        found = _VALUE.match(line, start)
        if found is None:
            raise BadFile(f"{where}: no SQL value at {shorten(line[start:], 40)!r}", _HINT)
        text, null, number, end = found.groups()
        yield None if null else number if text is None else text.replace("''", "'")
        if end == ")":
            return
        start = found.end()
