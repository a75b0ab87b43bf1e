"""llama-bench's `-o csv`, written and read, and `-o sql`, written: every field as text, without the repetitions."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence

from ggbench.errors import BadFile
from ggbench.formats.bench_row import FIELDS, BenchRow, FieldType, cell_text
from ggbench.show.text import without_formula
from ggbench.text import plain

_TABLE = "llama_bench"
_TYPES = {FieldType.STRING: "TEXT", FieldType.BOOL: "INTEGER", FieldType.INT: "INTEGER", FieldType.FLOAT: "REAL"}


def as_csv(rows: Sequence[BenchRow]) -> str:
    """Return a header and a line for each row, every value quoted as llama-bench does.

    Text that a spreadsheet would take for a formula gets an apostrophe in front.
    """
    buffer = io.StringIO()
    buffer.write(",".join(FIELDS) + "\n")
    writer = csv.writer(buffer, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for row in rows:
        writer.writerow(
            without_formula(value) if isinstance(value, str) else cell_text(value) for value in row.whole.values()
        )
    return buffer.getvalue()


def as_sql(rows: Sequence[BenchRow]) -> str:
    """Return the table and a statement for each row; quotes in a text are doubled, which llama-bench omits."""
    columns = ",\n".join(f"  {name} {_TYPES[kind]}" for name, (kind, _) in FIELDS.items())
    statements = [f"CREATE TABLE IF NOT EXISTS {_TABLE} (\n{columns}\n);\n\n"]
    for row in rows:
        values = ", ".join("'" + plain(cell_text(value)).replace("'", "''") + "'" for value in row.whole.values())
        statements.append(f"INSERT INTO {_TABLE} ({', '.join(FIELDS)}) VALUES ({values});\n")
    return "".join(statements)


def is_csv(text: str) -> bool:
    """Whether its first line names columns of llama-bench."""
    header = text.lstrip().partition("\n")[0].replace('"', "").split(",")
    return {"n_prompt", "n_gen"} <= {name.strip() for name in header}


def read_csv(text: str, name: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the fields of each line, with where it stands. Raises BadFile, naming the line."""
    reader = csv.reader(io.StringIO(text, newline=""))
    header: list[str] = []
    try:
        for cells in reader:
            if not cells:
                continue
            if not header:
                header = [cell.strip() for cell in cells]
                continue
            where = f"{name}, line {reader.line_num}"
            if len(cells) != len(header):
                raise BadFile(f"{where}: it has {len(cells)} values under {len(header)} names", _CSV_HINT)
            yield where, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise BadFile(f"{name}, line {reader.line_num}: {plain(str(error))}", _CSV_HINT) from None


_CSV_HINT = "give the file as llama-bench wrote it"
