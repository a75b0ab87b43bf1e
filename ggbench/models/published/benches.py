"""Rows of llama-bench that others published: device, model, settings and speed, each with its source.

`data/llama-bench.csv` has one measurement per line and `data/llama-bench-sources.toml` the addresses;
`scripts/read_rows` adds to both. Only facts: the data in a table, and in the log lines above it about the device.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec.structs import asdict

from ggbench.models.published import data_text, reads_data
from ggbench.record import Record

LLAMA_BENCH = "llama-bench"
ROWS_FILE = "llama-bench.csv"
SOURCES_FILE = "llama-bench-sources.toml"


_Name = Annotated[str, msgspec.Meta(pattern=r"^[\w .,:@()+/?-]{1,64}$")]
_Above0 = msgspec.Meta(gt=0)


class BenchedRow(Record, kw_only=True):
    """One test of llama-bench; None means not stated, i.e. that build's default."""

    source: str
    """Id of the source, as in `load_bench_sources`."""
    device: _Name
    """Id in `known_devices.toml`, else the name printed by llama.cpp; a CPU's name if no GPU was used."""
    count: Annotated[int, _Above0] = 1
    """Number of devices that the model was split over."""
    backend: _Name
    """CUDA, ROCm, Vulkan, SYCL, Metal, CPU."""
    model: _Name
    """llama-bench's name of the model, without the quant: `qwen3moe 30B.A3B`."""
    quant: _Name
    """`q4_k_m`; mixes of types (`UD-Q4_K_XL`) have the name of their file type."""
    weight_bytes: int | None = None
    """Rounded to 0.01 GiB or MiB if from a table."""
    n_params: int | None = None
    n_gpu_layers: int | None = None
    n_cpu_moe: int | None = None
    n_threads: int | None = None
    n_batch: int | None = None
    n_ubatch: int | None = None
    type_k: _Name | None = None
    type_v: _Name | None = None
    flash_attn: int | None = None
    """-1 auto, 0 off, 1 on."""
    split_mode: _Name | None = None
    test: Annotated[str, msgspec.Meta(pattern=r"^(pp[1-9]\d{0,8}|tg|tg[1-9]\d{0,8})$")]
    """`pp512` or `tg128`; `tg` for a server's own timing of an answer of unknown length."""
    n_depth: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Tokens in the KV cache before the test."""
    tok_s: Annotated[float, _Above0]
    stddev: float | None = None
    """Standard deviation of the repetitions, in tok/s."""
    build: _Name | None = None
    """Number of the build, `b2824`, or its commit."""
    date: Annotated[str, msgspec.Meta(pattern=r"^20\d\d-(0[1-9]|1[0-2])$")]
    """Month of publication, `2024-05`."""

    @property
    def system(self) -> str:
        """`llama.cpp`, the name in the rows of documents."""
        return "llama.cpp"

    @property
    def model_id(self) -> str:
        """`qwen3moe-30b.a3b`, for options."""
        return self.model.lower().replace(" ", "-")


class BenchSource(Record):
    """A public source of rows."""

    id: str
    title: str
    address: str
    remark: str = ""
    """Conditions of all rows, such as a power limit."""


FIELDS = BenchedRow.__struct_fields__


@reads_data
def load_benches() -> tuple[BenchedRow, ...]:
    rows, sources = tuple(parse_benches(data_text(ROWS_FILE))), {source.id for source in load_bench_sources()}
    if unknown := {row.source for row in rows} - sources:
        raise LookupError(f"no source {min(unknown)}")
    return rows


@reads_data
def load_bench_sources() -> tuple[BenchSource, ...]:
    return msgspec.toml.decode(data_text(SOURCES_FILE), type=dict[str, tuple[BenchSource, ...]])["source"]


def parse_benches(text: str) -> list[BenchedRow]:
    """Return the rows of a CSV with these fields. Raises msgspec.ValidationError for a cell of the wrong type."""
    return [
        msgspec.convert({name: cell for name, cell in line.items() if cell}, BenchedRow, strict=False)
        for line in csv.DictReader(io.StringIO(text))
    ]


def benches_csv(rows: Sequence[BenchedRow]) -> str:
    """Return the rows as CSV; an empty cell means not stated, or the default of a field that is always stated."""
    defaults = dict(
        zip(FIELDS[-len(BenchedRow.__struct_defaults__) :], BenchedRow.__struct_defaults__, strict=True)
    )
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(FIELDS)
    for row in rows:
        writer.writerow("" if value == defaults.get(name) else value for name, value in asdict(row).items())
    return buffer.getvalue()
