"""Read llama-bench's output, or rows of `ggbench export --format row`, and add them to the published data.

Text is read as pasted, with tables, JSON, JSON lines or CSV in it, from files or standard input. The log lines above a
table name its devices; --device and --count override them, and are needed for a CPU. A row that is malformed, already
there, or faster than its device's memory allows is left out with a line that says so. Exit code 5 if there was no row
to add.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ggbench.errors import BadFile, UsageError
from ggbench.formats.published_rows import device_id, published_row
from ggbench.models.published.benches import (
    ROWS_FILE,
    SOURCES_FILE,
    BenchedRow,
    BenchSource,
    benches_csv,
    parse_benches,
)
from ggbench.text import sanitize
from scripts.llama_bench_pasted import PastedRow, read_pasted
from scripts.published_rows import measurement, problem_of

DATA = Path(__file__).parent.parent / "ggbench" / "models" / "published" / "data"


def main() -> int:
    options = _parser().parse_args()
    rows_file, sources_file = options.data / ROWS_FILE, options.data / SOURCES_FILE
    rows = parse_benches(rows_file.read_text("utf-8")) if rows_file.exists() else []
    known = {measurement(row) for row in rows}
    n_before = len(rows)
    for text, name in _texts(options.files):
        for row in _rows(text, name, options):
            if isinstance(row, str):
                print(row)
            elif measurement(row) in known:
                print(f"{name}: {row.device} {row.model} {row.quant} {row.test} {row.tok_s:g}: already there")
            else:
                known.add(measurement(row))
                rows.append(row)
    added = len(rows) - n_before
    print(f"{added} rows of {options.source} added" if not options.dry_run else f"{added} rows could be added")
    if added and not options.dry_run:
        _keep_source(sources_file, options)
        rows_file.write_text(benches_csv(rows), "utf-8")
    return 0 if added else 5


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "files", nargs="*", type=Path, help="text with llama-bench's output; standard input without"
    )
    parser.add_argument("--source", required=True, help="id of the place, such as llama.cpp-pr-15077")
    parser.add_argument("--title", help="title of the place, if it is new")
    parser.add_argument("--address", help="web address of the place, if it is new")
    parser.add_argument(
        "--remark", default="", help="what concerns every row of the place, such as a power limit"
    )
    parser.add_argument(
        "--date", type=_month, help="month of publication of llama-bench's rows, such as 2024-05"
    )
    parser.add_argument("--device", help="device of every row: an id of known_devices.toml or a name")
    parser.add_argument("--count", type=int, help="number of devices")
    parser.add_argument(
        "--n-cpu-moe", type=int, help="layers with experts on the CPU, which older tables do not show"
    )
    parser.add_argument("--model", default="", help="keep only models whose llama-bench name contains this")
    parser.add_argument("--dry-run", action="store_true", help="report, and write nothing")
    parser.add_argument("--data", type=Path, default=DATA, help=argparse.SUPPRESS)
    return parser


def _month(text: str) -> str:
    if not re.fullmatch(r"20\d\d-(?:0[1-9]|1[0-2])", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a month such as 2024-05")
    return text


def _texts(files: list[Path]) -> Iterator[tuple[str, str]]:
    if not files:
        yield sys.stdin.read(), "standard input"
    for file in files:
        yield file.read_text("utf-8", errors="replace"), file.name


def _rows(text: str, name: str, options: argparse.Namespace) -> Iterator[BenchedRow | str]:
    lines = [line.strip("> \t\r") for line in text.splitlines()]
    reader = (
        _exported_rows(lines, name, options)
        if any(map(_is_header, lines))
        else _rows_of_bench(text, name, options)
    )
    for where, row in reader:
        problem = row if isinstance(row, str) else problem_of(row)
        yield f"{where}: {problem}" if problem else row


def _is_header(line: str) -> bool:
    return line.startswith("source,device,")


def _exported_rows(
    lines: list[str], name: str, options: argparse.Namespace
) -> Iterator[tuple[str, BenchedRow | str]]:
    """Yield the rows below each header, down to an empty line or the end of a block, or what is wrong with one."""
    header = ""
    for number, line in enumerate(lines, start=1):
        if _is_header(line):
            header = line
        elif not line or line.startswith("`"):
            header = ""
        elif header and options.model in line:
            yield f"{name}, line {number}", _exported_row(header, line, options.source)


def _exported_row(header: str, line: str, source: str) -> BenchedRow | str:
    """Return the row, or what is wrong with it."""
    try:
        n_cells, n_names = (len(next(csv.reader([each], strict=True))) for each in (line, header))
        if n_cells != n_names:
            return f"it has {n_cells} cells under {n_names} names; paste whole lines"
        (row,) = parse_benches(f"{header}\n{source}{line[line.index(',') :]}\n")
    except (csv.Error, msgspec.ValidationError) as error:
        return sanitize(str(error))
    return replace(row, device=device_id(row.device, None))


def _rows_of_bench(text: str, name: str, options: argparse.Namespace) -> Iterator[tuple[str, BenchedRow | str]]:
    """Yield the rows of llama-bench, or what each lacks."""
    try:
        for pasted in read_pasted(text, name):
            if isinstance(pasted, BadFile):
                yield (
                    name,
                    pasted.message.removeprefix(f"{name}: ") + (f"; {pasted.hint}" if pasted.hint else ""),
                )
            elif options.model in pasted.row.text("model_type"):
                yield pasted.where, _benched(pasted, options)
    except BadFile as error:
        yield name, error.message.removeprefix(f"{name}: ")


def _benched(pasted: PastedRow, options: argparse.Namespace) -> BenchedRow | str:
    """Return the row, or what it lacks."""
    if pasted.row.n_prompt and pasted.row.n_gen:
        return f"{pasted.row.test} is a prompt and an answer in one rate"
    devices = pasted.devices if not pasted.row.text("backends").startswith("CPU") else ()
    if options.device:
        devices = (options.device,) * (len(devices) or 1)
    if len(set(devices)) > 1:
        return f"the log has several kinds of device, so state --device: {', '.join(devices)}"
    if not devices or not options.date:
        return (
            "no log line names the device, so state --device"
            if not devices
            else "state the month: --date 2026-02"
        )
    try:
        row = published_row(pasted.row, devices, source=options.source, date=options.date)
    except UsageError as error:
        return error.message
    n_cpu_moe = row.n_cpu_moe if options.n_cpu_moe is None else options.n_cpu_moe
    return replace(row, count=options.count or row.count, n_cpu_moe=n_cpu_moe)


def _keep_source(file: Path, options: argparse.Namespace) -> None:
    """Add the place to the sources if it is new, which takes --title and --address."""
    text = file.read_text("utf-8") if file.exists() else ""
    sources = msgspec.toml.decode(text, type=dict[str, list[BenchSource]]).get("source", [])
    if any(source.id == options.source for source in sources):
        return
    if not (options.title and options.address):
        sys.exit(f"{options.source} is a new place: state its --title and --address")
    new = {"id": options.source, "title": options.title, "address": options.address}
    if options.remark:
        new["remark"] = options.remark
    entry = "\n".join(f"{name} = {_quoted(value)}" for name, value in new.items())
    file.write_text(f"{text.rstrip()}\n\n[[source]]\n{entry}\n".lstrip(), "utf-8")


def _quoted(text: str) -> str:
    return '"' + sanitize(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


if __name__ == "__main__":
    sys.exit(main())
