"""llama-bench's outputs, each written and read but for SQL, which is only written.

JSON and JSON lines keep every repetition; CSV and SQL have every field without them; the table, which is what people
paste into issues, is rounded and has no time of a test.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence

from ggbench.errors import BadFile
from ggbench.formats.bench_row import FIELDS, BenchRow, FieldType, cell_text
from ggbench.show.text import markdown_escaped, without_formula
from ggbench.text import sanitize, shorten

_NAMES = {
    "ngl": "n_gpu_layers", "sm": "split_mode", "threads": "n_threads", "nkvo": "no_kv_offload", "fa": "flash_attn",
    "lm": "load_mode", "embd": "embeddings", "nopo": "no_op_offload", "noh": "no_host", "rpk": "repack",
    "dev": "devices", "ts": "tensor_split", "ot": "tensor_buft_overrides", "fitt": "fit_target",
    "fitc": "fit_min_ctx", "model": "model_type", "backend": "backends",
}  # fmt: skip
"""Fields by what the header calls them; `get_field_display_name` of llama-bench."""
_SOMETIMES = (
    "n_gpu_layers", "n_cpu_moe", "n_threads", "n_batch", "n_ubatch", "type_k", "type_v", "main_gpu", "split_mode",
    "no_kv_offload", "flash_attn", "devices", "tensor_split", "tensor_buft_overrides", "load_mode",
)  # fmt: skip
"""Shown where rows differ in one, or it is not llama-bench's default."""
_TEST = re.compile(r"(?:pp(\d{1,10}))?\+?(?:tg(\d{1,10}))?(?:\s*@\s*d(\d{1,10}))?")
_SPEED = re.compile(r"([0-9.]+)(?:\s*±\s*([0-9.]+))?")
_BUILD = re.compile(r"^build:\s*(\S+)(?:\s*\((\d+)\))?", re.MULTILINE)


def as_markdown(rows: Sequence[BenchRow]) -> str:
    """Return the table with the columns that llama-bench would show, and a line for each build."""
    whole = [row.whole for row in rows]
    shown = [name for name in _SOMETIMES if _is_shown(name, rows)]
    headers = ["model", "size", "params", "backend", *(_short(name) for name in shown), "test", "t/s"]
    lines = [headers, ["---", *["---:"] * 2, "---", *["---:"] * (len(shown) + 2)]]
    for row, fields in zip(rows, whole, strict=True):
        cells = [row.text("model_type"), _size(row), _params(row), row.text("backends")]
        cells += [cell_text(fields[name]) for name in shown]
        speed = f"{row.number('avg_ts'):.2f} ± {row.number('stddev_ts'):.2f}"
        lines.append([markdown_escaped(cell) for cell in cells] + [row.test, speed])
    builds = dict.fromkeys((row.text("build_commit"), row.integer("build_number")) for row in rows)
    footer = "".join(f"build: {markdown_escaped(commit)} ({number})\n" for commit, number in builds)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines) + f"\n{footer}"


def is_table(text: str) -> bool:
    """Whether it has the header of such a table."""
    return any(_header(line) for line in text.splitlines())


def read_table(text: str, name: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the fields of each row, with where it stands; other lines are skipped. Raises BadFile, naming the line."""
    header: list[str] = []
    build = _BUILD.search(text)
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.lstrip().startswith("|"):
            header = [] if line.strip() else header
            continue
        cells = _cells(line)
        if _header(line):
            header = cells
        elif header and not set("".join(cells)) <= set("-: "):
            where = f"{name}, line {number}"
            if len(cells) != len(header):
                raise BadFile(f"{where}: it has {len(cells)} cells under {len(header)} headers", _TABLE_HINT)
            yield where, _fields(dict(zip(header, cells, strict=True)), where) | _build(build)


_TABLE_HINT = "give the table as llama-bench printed it"


def _fields(cells: Mapping[str, str], where: str) -> dict[str, object]:
    test, speed = _TEST.fullmatch(cells["test"]), _SPEED.fullmatch(cells["t/s"])
    if test is None or not (test[1] or test[2]):
        raise BadFile(
            f"{where}: {shorten(cells['test'], 40)!r} is not a test such as pp512 or tg128 @ d4096", _TABLE_HINT
        )
    if speed is None:
        raise BadFile(f"{where}: {shorten(cells['t/s'], 40)!r} is not a speed such as 12.34 ± 0.56", _TABLE_HINT)
    counts = {"n_prompt": test[1] or "0", "n_gen": test[2] or "0", "n_depth": test[3] or "0"}
    named = {_NAMES.get(short, short): text for short, text in cells.items() if text}
    rounded = {"size", "params", "test", "t/s"}  # of size and params a few digits are left, which is no count of bytes
    stated: dict[str, object] = {field: text for field, text in named.items() if field not in rounded}
    return stated | counts | {"avg_ts": speed[1], "stddev_ts": speed[2] or "0"}


def _build(found: re.Match[str] | None) -> dict[str, object]:
    return {} if found is None else {"build_commit": found[1], "build_number": found[2] or "0"}


def _header(line: str) -> bool:
    return line.lstrip().startswith("|") and {"model", "test", "t/s"} <= set(_cells(line))


def _cells(line: str) -> list[str]:
    parts = re.split(r"(?<!\\)\|", line.strip().removeprefix("|").removesuffix("|"))
    return [re.sub(r"\\([\\|`*<>\[\]&~])", r"\1", part).strip() for part in parts]


def _is_shown(name: str, rows: Sequence[BenchRow]) -> bool:
    values = {row.whole[name] for row in rows if not isinstance(row.whole[name], list)}
    if name in ("n_threads", "n_gpu_layers"):  # llama-bench shows threads on a CPU, layers elsewhere
        on_cpu = all("CPU" in row.text("backends") for row in rows)
        return on_cpu if name == "n_threads" else not on_cpu
    return len(values) > 1 or values != {BenchRow({}).whole[name]}


def _short(name: str) -> str:
    return next((short for short, field in _NAMES.items() if field == name), name)


def _size(row: BenchRow) -> str:
    mib = row.integer("model_size") / 2**20
    return f"{mib:.2f} MiB" if mib < 1024 else f"{mib / 1024:.2f} GiB"


def _params(row: BenchRow) -> str:
    millions = row.integer("model_n_params") / 1e6
    return f"{millions:.2f} M" if millions < 1000 else f"{millions / 1e3:.2f} B"


def as_json(rows: Sequence[BenchRow]) -> str:
    """Return one array."""
    objects = (
        "  {\n" + ",\n".join(f"    {_json(name)}: {_json(value)}" for name, value in _document(row).items()) + "\n  }"
        for row in rows
    )
    return "[\n" + ",\n".join(objects) + "\n]\n"


def as_jsonl(rows: Sequence[BenchRow]) -> str:
    """Return an object a line."""
    return "".join(f"{_json(_document(row))}\n" for row in rows)


def is_objects(text: str) -> bool:
    """Whether it begins as one of the two does."""
    return text.lstrip().startswith(("[", "{"))


def read_objects(text: str, name: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the objects of an array, or of lines, each with where it stands. Raises BadFile, naming the line."""
    if text.lstrip().startswith("["):
        yield from _entries(_parse(text, name, 1), name)
        return
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            where = f"{name}, line {number}"
            entry = _parse(line, name, number)
            if not isinstance(entry, dict):
                raise BadFile(f"{where}: this is not a JSON object", _JSON_HINT)
            yield where, entry


_JSON_HINT = "give the file as the tool wrote it, without other output in it"


def _entries(entries: object, name: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    assert isinstance(entries, list)
    for number, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict):
            raise BadFile(f"{name}, entry {number}: this is not a JSON object", _JSON_HINT)
        yield f"{name}, entry {number}", entry


def _parse(text: str, name: str, first_line: int) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise BadFile(f"{name}, line {line}, column {error.colno}: {sanitize(error.msg)}", _JSON_HINT) from None
    except (ValueError, RecursionError):  # an integer of more digits than Python reads, or a thousand brackets
        raise BadFile(f"{name}, line {first_line}: this is not JSON that a tool writes", _JSON_HINT) from None


def _document(row: BenchRow) -> dict[str, object]:
    document: dict[str, object] = dict(row.whole)
    if row.samples_ns:
        document |= {"samples_ns": row.samples_ns, "samples_ts": [round(each, 4) for each in row.samples_ts]}
    return document


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=True)


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
        values = ", ".join("'" + sanitize(cell_text(value)).replace("'", "''") + "'" for value in row.whole.values())
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
        raise BadFile(f"{name}, line {reader.line_num}: {sanitize(str(error))}", _CSV_HINT) from None


_CSV_HINT = "give the file as llama-bench wrote it"
