"""llama-bench's table, which is what people paste into issues: rounded, and without the time of a test."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from ggbench.errors import BadFile
from ggbench.formats.bench_row import BenchRow, cell_text
from ggbench.show.text import markdown_escaped
from ggbench.text import shorten

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
        raise BadFile(f"{where}: {shorten(cells['test'], 40)!r} is not a test such as pp512 or tg128 @ d4096", _TABLE_HINT)
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
