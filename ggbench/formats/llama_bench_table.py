"""llama-bench's table in Markdown, which people paste into issues: rounded, and without repetitions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from ggbench.errors import BadFile
from ggbench.formats.llama_bench import FIELDS, BenchRow, cell_text
from ggbench.show.answer import Table
from ggbench.show.figure import Figure, member
from ggbench.show.text import markdown_escaped
from ggbench.text import shorten

_NAMES = {
    "ngl": "n_gpu_layers", "sm": "split_mode", "threads": "n_threads", "nkvo": "no_kv_offload", "fa": "flash_attn",
    "lm": "load_mode", "embd": "embeddings", "nopo": "no_op_offload", "noh": "no_host", "rpk": "repack",
    "dev": "devices", "ts": "tensor_split", "ot": "tensor_buft_overrides", "fitt": "fit_target",
    "fitc": "fit_min_ctx", "model": "model_type", "backend": "backends",
}  # fmt: skip
"""Fields by their names in the table's header, from llama-bench's `get_field_display_name`."""
_SOMETIMES = (
    "n_gpu_layers", "n_cpu_moe", "n_threads", "n_batch", "n_ubatch", "type_k", "type_v", "main_gpu", "split_mode",
    "no_kv_offload", "flash_attn", "devices", "tensor_split", "tensor_buft_overrides", "load_mode",
)  # fmt: skip
"""Fields shown only if rows differ in them, or if they are not llama-bench's defaults."""
_TEST = re.compile(r"(?:pp ?(\d{1,10}))?\+?(?:tg ?(\d{1,10}))?(?:\s*@\s*d(\d{1,10}))?")
_SPEED = re.compile(r"([0-9.]+)(?:\s*±\s*([0-9.]+))?")
BUILD = re.compile(r"^build:\s*(\S+)(?:\s*\((\d+)\))?", re.MULTILINE)


_UNKNOWN = "unknown"


def _scaled(value: float, step: int, unit: str, larger: str) -> str:
    return f"{value:.2f} {unit}" if value < step else f"{value / step:.2f} {larger}"


_MODEL = (
    Figure[BenchRow]("model_type", "model", lambda row: row.text("model_type") or _UNKNOWN),
    Figure[BenchRow](
        "model_size",
        "size",
        lambda row: row.integer("model_size"),
        lambda n: _scaled(n / 2**20, 1024, "MiB", "GiB"),
    ),
    Figure[BenchRow](
        "model_n_params",
        "params",
        lambda row: row.integer("model_n_params"),
        lambda n: _scaled(n / 1e6, 1000, "M", "B"),
    ),
    Figure[BenchRow]("backends", "backend", lambda row: row.text("backends") or _UNKNOWN),
)
_RESULT = (
    member("test", "test"),
    Figure[BenchRow](
        "avg_ts", "t/s", lambda row: f"{row.number('avg_ts'):.2f} ± {row.number('stddev_ts'):.2f}"
    ),
)


def as_markdown(rows: Sequence[BenchRow]) -> str:
    short = {field: name for name, field in _NAMES.items()}
    shown = [name for name in _SOMETIMES if _is_shown(name, rows)]
    settings = [Figure[BenchRow](name, short.get(name, name), _cell_of(name)) for name in shown]
    builds = dict.fromkeys((row.text("build_commit"), row.integer("build_number")) for row in rows)
    footer = "".join(f"build: {markdown_escaped(commit)} ({number})\n" for commit, number in builds)
    return f"{Table((*_MODEL, *settings, *_RESULT), rows).markdown()}\n\n{footer}"


def _cell_of(name: str) -> Callable[[BenchRow], str]:
    return lambda row: cell_text(row.whole[name])


def is_table(text: str) -> bool:
    return any(line.lstrip().startswith("|") and is_table_header(line) for line in text.splitlines())


def read_table(text: str, name: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the fields of each row and its location, skipping other lines. Raises BadFile, naming the line."""
    header: list[str] = []
    found = BUILD.search(text)
    build = {"build_commit": found[1], "build_number": found[2] or "0"} if found else {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.lstrip().startswith("|"):
            header = [] if line.strip() else header
            continue
        cells = table_cells(line)
        if is_table_header(line):
            header = cells
        elif header and not set("".join(cells)) <= set("-: "):
            where = f"{name}, line {number}"
            if len(cells) != len(header):
                raise BadFile(f"{where}: it has {len(cells)} cells under {len(header)} headers", _TABLE_HINT)
            yield where, table_fields(dict(zip(header, cells, strict=True)), where) | build


_TABLE_HINT = "pass the unmodified table of llama-bench"


def table_fields(cells: Mapping[str, str], where: str) -> dict[str, object]:
    test, speed = _TEST.fullmatch(cells["test"]), _SPEED.fullmatch(cells["t/s"])
    if test is None or not (test[1] or test[2]):
        raise BadFile(
            f"{where}: {shorten(cells['test'], 40)!r} is not a test such as pp512 or tg128 @ d4096", _TABLE_HINT
        )
    if speed is None:
        raise BadFile(
            f"{where}: {shorten(cells['t/s'], 40)!r} is not a speed such as 12.34 ± 0.56", _TABLE_HINT
        )
    counts = {"n_prompt": test[1] or "0", "n_gen": test[2] or "0", "n_depth": test[3] or "0"}
    named = {_NAMES.get(short, short): text for short, text in cells.items() if text}
    rounded = {"size", "params", "test", "t/s"}  # size and params have only a few digits, so they are not exact
    stated: dict[str, object] = {field: text for field, text in named.items() if field not in rounded}
    deviation = {"stddev_ts": speed[2]} if speed[2] else {}
    return stated | counts | {"avg_ts": speed[1]} | deviation


def is_table_header(line: str) -> bool:
    return {"model", "test", "t/s"} <= set(table_cells(line))


def table_cells(line: str) -> list[str]:
    parts = re.split(r"(?<!\\)\|", line.strip().removeprefix("|").removesuffix("|"))
    return [re.sub(r"\\([\\|`*<>\[\]&~])", r"\1", part).strip() for part in parts]


def _is_shown(name: str, rows: Sequence[BenchRow]) -> bool:
    if name in ("n_threads", "n_gpu_layers"):  # llama-bench shows threads for CPUs, layers otherwise
        return (name == "n_threads") == all("CPU" in row.text("backends") for row in rows)
    return {row.whole[name] for row in rows if not isinstance(row.whole[name], list)} != {FIELDS[name]}
