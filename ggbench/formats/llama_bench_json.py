"""llama-bench's `-o json` and `-o jsonl`: the formats that keep every repetition."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from ggbench.errors import BadFile
from ggbench.formats.bench_row import BenchRow
from ggbench.text import plain


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
        raise BadFile(f"{name}, line {line}, column {error.colno}: {plain(error.msg)}", _JSON_HINT) from None
    except (ValueError, RecursionError):  # an integer of more digits than Python reads, or a thousand brackets
        raise BadFile(f"{name}, line {first_line}: this is not JSON that a tool writes", _JSON_HINT) from None


def _document(row: BenchRow) -> dict[str, object]:
    document: dict[str, object] = dict(row.whole)
    if row.samples_ns:
        document |= {"samples_ns": row.samples_ns, "samples_ts": [round(each, 4) for each in row.samples_ts]}
    return document


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=True)
