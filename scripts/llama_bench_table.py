"""llama-bench's table in Markdown, which people paste into issues: rounded, and without repetitions; and its CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping

from ggbench.errors import BadFile
from ggbench.text import sanitize, shorten

_NAMES = {
    "ngl": "n_gpu_layers", "sm": "split_mode", "threads": "n_threads", "nkvo": "no_kv_offload", "fa": "flash_attn",
    "lm": "load_mode", "embd": "embeddings", "nopo": "no_op_offload", "noh": "no_host", "rpk": "repack",
    "dev": "devices", "ts": "tensor_split", "ot": "tensor_buft_overrides", "fitt": "fit_target",
    "fitc": "fit_min_ctx", "model": "model_type", "backend": "backends",
}  # fmt: skip
"""Fields by their names in the table's header, from llama-bench's `get_field_display_name`."""
_TEST = re.compile(r"(?:pp ?(\d{1,10}))?\+?(?:tg ?(\d{1,10}))?(?:\s*@\s*d(\d{1,10}))?")
_SPEED = re.compile(r"([0-9.]+)(?:\s*±\s*([0-9.]+))?")
BUILD = re.compile(r"^build:\s*(\S+)(?:\s*\((\d+)\))?", re.MULTILINE)


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


def is_csv(text: str) -> bool:
    header = text.lstrip().partition("\n")[0].replace('"', "").split(",")
    return {"n_prompt", "n_gen"} <= {name.strip() for name in header}


def read_csv(text: str, name: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the fields of each line and its location. Raises BadFile, naming the line."""
    reader = csv.DictReader(io.StringIO(text.lstrip(), newline=""), restkey="")
    try:
        for cells in reader:
            where = f"{name}, line {reader.line_num}"
            if "" in cells or None in cells.values():
                raise BadFile(f"{where}: it has more or fewer values than names", _CSV_HINT)
            yield where, cells
    except csv.Error as error:
        raise BadFile(f"{name}, line {reader.line_num}: {sanitize(str(error))}", _CSV_HINT) from None


_CSV_HINT = "pass the unmodified file of llama-bench"
