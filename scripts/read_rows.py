"""Read llama-bench's output from pasted text and add its rows to the published data.

Tables, JSON, JSON lines and CSV are read, from files or standard input. The log lines above a table name its devices;
--device and --count override them, and are needed for a CPU. A row that is malformed, already there, or faster than
its device's memory allows is left out with a line that says so. Exit code 5 if there was no row to add.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ggbench.errors import BadFile
from ggbench.machine.known_devices import known_devices, recognize_device
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
from scripts.published_rows import measurement, problem_of, split_model_type

DATA = Path(__file__).parent.parent / "ggbench" / "models" / "published" / "data"
BACKENDS = {"MTL": "Metal", "HIP": "ROCm", "BLAS": "CPU"}
_STATED = ("n_gpu_layers", "n_cpu_moe", "n_threads", "n_batch", "n_ubatch", "type_k", "type_v", "flash_attn",
           "split_mode")  # fmt: skip


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
    parser.add_argument("--date", required=True, type=_month, help="month of publication, such as 2024-05")
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
    try:
        for pasted in read_pasted(text, name):
            if isinstance(pasted, BadFile):
                yield f"{pasted.message}; {pasted.hint}" if pasted.hint else pasted.message
            elif options.model in pasted.row.text("model_type"):
                row = _benched(pasted, options)
                problem = row if isinstance(row, str) else problem_of(row)
                yield f"{pasted.where}: {problem}" if problem else row
    except BadFile as error:
        yield error.message


def _benched(pasted: PastedRow, options: argparse.Namespace) -> BenchedRow | str:
    """Return the row, or what it lacks."""
    row, fields = pasted.row, pasted.row.fields
    model, quant = split_model_type(row.text("model_type"))
    backend = re.split(r"[,+ ]", row.text("backends"))[0]
    if not quant or not backend:
        return f"model {row.text('model_type')!r} or backend {row.text('backends')!r} is not llama-bench's"
    if row.n_prompt and row.n_gen:
        return f"{row.test} is a prompt and an answer in one rate"
    if len(set(pasted.devices)) > 1 and not options.device:
        return f"the log has several kinds of device, so state --device: {', '.join(pasted.devices)}"
    device = options.device or (pasted.devices[0] if pasted.devices and backend != "CPU" else None)
    if device is None:
        return "no log line names the device, so state --device"
    stated: dict[str, Any] = {name: fields[name] for name in _STATED if name in fields}
    if options.n_cpu_moe is not None:
        stated["n_cpu_moe"] = options.n_cpu_moe
    number, commit = row.integer("build_number"), row.text("build_commit")
    used = row.text("devices") not in ("", "auto") and row.text("devices").count("/") + 1
    return BenchedRow(
        source=options.source,
        device=_device(device),
        count=options.count or used or (1 if row.text("split_mode") == "none" else len(pasted.devices)) or 1,
        backend=BACKENDS.get(backend, backend),
        model=model,
        quant=quant,
        weight_bytes=row.integer("model_size") or None,
        n_params=row.integer("model_n_params") or None,
        test=row.test.partition(" ")[0],
        n_depth=row.n_depth,
        tok_s=round(row.number("avg_ts"), 2),
        stddev=round(row.number("stddev_ts"), 2) if "stddev_ts" in fields else None,
        build=f"b{number}" if number > 1 else commit.removeprefix("unknown") or None,
        date=options.date,
        **stated,
    )


def _device(name: str) -> str:
    """Return the id of a known device, else the name without trademarks."""
    if any(device.id == name for device in known_devices()):
        return name
    plain = " ".join(re.sub(r"\((?:R|TM)\)", "", name, flags=re.IGNORECASE).split())
    found = recognize_device(plain, None)
    return found.id if found else plain


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
