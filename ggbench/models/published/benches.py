"""Rows of llama-bench that others published: device, model, settings and speed, each with its source.

`data/llama-bench.csv` has one measurement per line and `data/llama-bench-sources.toml` the addresses;
`scripts/read_rows` adds to both. Only facts: the data in a table, and in the log lines above it about the device.
"""

from __future__ import annotations

import csv
import functools
import io
import re
from collections.abc import Sequence

import msgspec
from msgspec.structs import asdict, replace

from ggbench.gguf_file.quants import canonical_quant, quant_from_words
from ggbench.machine.known_devices import KnownDevice, known_devices
from ggbench.models.published import data_text, reads_data

LLAMA_BENCH = "llama-bench"
ROWS_FILE = "llama-bench.csv"
SOURCES_FILE = "llama-bench-sources.toml"


class BenchedRow(msgspec.Struct, frozen=True, kw_only=True):
    """One test of llama-bench; None means not stated, i.e. that build's default."""

    source: str
    """Id of the source, as in `load_bench_sources`."""
    device: str
    """Id in `known_devices.toml`, else the name printed by llama.cpp; a CPU's name if no GPU was used."""
    count: int = 1
    """Number of devices that the model was split over."""
    backend: str
    """CUDA, ROCm, Vulkan, SYCL, Metal, CPU."""
    model: str
    """llama-bench's name of the model, without the quant: `qwen3moe 30B.A3B`."""
    quant: str
    """`q4_k_m`; mixes of types (`UD-Q4_K_XL`) have the name of their file type."""
    weight_bytes: int | None = None
    """Rounded to 0.01 GiB or MiB if from a table."""
    n_params: int | None = None
    n_gpu_layers: int | None = None
    n_cpu_moe: int | None = None
    n_threads: int | None = None
    n_batch: int | None = None
    n_ubatch: int | None = None
    type_k: str | None = None
    type_v: str | None = None
    flash_attn: int | None = None
    """-1 auto, 0 off, 1 on."""
    split_mode: str | None = None
    test: str
    """`pp512` or `tg128`."""
    n_depth: int = 0
    """Tokens in the KV cache before the test."""
    tok_s: float
    stddev: float | None = None
    """Standard deviation of the repetitions, in tok/s."""
    build: str | None = None
    """Number of the build, `b2824`, or its commit."""
    date: str
    """Month of publication, `2024-05`."""

    @property
    def system(self) -> str:
        """`llama.cpp`, the name in the rows of documents."""
        return "llama.cpp"

    @property
    def is_decode(self) -> bool:
        return self.test.startswith("tg")

    @property
    def model_id(self) -> str:
        """`qwen3moe-30b.a3b`, for options."""
        return self.model.lower().replace(" ", "-")


class BenchSource(msgspec.Struct, frozen=True):
    """A public source of rows."""

    id: str
    title: str
    address: str
    remark: str = ""
    """Conditions of all rows, such as a power limit."""


FIELDS = BenchedRow.__struct_fields__
_MODEL_TYPE = re.compile(
    r"(?P<model>.+?) (?:mostly )?(?P<words>(?:all )?[A-Z0-9_]+(?: - (?:Small|Medium|Large|[\d.]+ bpw))?)"
)
_ACTIVE = re.compile(r"[ .]A(\d+(?:\.\d+)?)B")
_ACTIVE_BILLIONS = {
    "gpt-oss 20B": 3.6, "gpt-oss 120B": 5.1, "llama 8x7B": 12.9, "llama 8x22B": 39, "deepseek2 16B": 2.4,
    "deepseek2 236B": 21, "deepseek2 671B": 37, "dots1 142B": 14, "qwen2moe 57B.A14B": 14,
}  # fmt: skip
"""Parameters used by one token, from the model cards, if the name does not state them."""
_DENSE_SHARE = 0.9
"""Least share of a dense model's bytes read by a token: all except the token embeddings."""
_EXPERTS_SHARE = 0.75
"""The same for a mixture of experts, relative to `active / all` of its parameters."""
_PER_LAYER_SHARE = 0.4
"""The same for models with embeddings per layer, whose names state the effective size: `E4B`."""
_FASTEST_BYTES_S = 1e13
"""Higher than any device's memory bandwidth, for devices with unknown bandwidth."""


@reads_data
def load_benches() -> tuple[BenchedRow, ...]:
    return tuple(parse_benches(data_text(ROWS_FILE)))


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
    defaults = dict(zip(FIELDS[-len(BenchedRow.__struct_defaults__) :], BenchedRow.__struct_defaults__, strict=True))
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(FIELDS)
    for row in rows:
        writer.writerow("" if value == defaults.get(name) else value for name, value in asdict(row).items())
    return buffer.getvalue()


def split_model_type(model_type: str) -> tuple[str, str]:
    """Return model and quant of llama-bench's `qwen3moe 30B.A3B Q4_K - Medium`; the quant is empty if it has none."""
    found = _MODEL_TYPE.fullmatch(model_type.strip().removesuffix(" MoE"))
    if found is None:
        return model_type.strip(), ""
    words, _, size = found["words"].partition(" - ")
    quant = canonical_quant(words) if size.endswith("bpw") else quant_from_words(found["words"])
    return found["model"], quant


def measurement(row: BenchedRow) -> BenchedRow:
    """Return the row without its source and date: equal rows are one measurement."""
    return replace(row, source="", date="")


def problem_of(row: BenchedRow) -> str:
    """Return why a row is impossible, e.g. because the device would exceed its bandwidth; empty if it is possible.

    The bound is deliberately weak: the minimum bytes of a token, read at the datasheet's bandwidth. Weights on the host
    are slower, so rows with some there satisfy it too. A model split by layers reads from one device at a time. Prompts
    are checked against four times the FP16 rate of the matrix cores, as 8-bit and 4-bit types are faster.
    """
    device = _known(row.device)
    together = row.count if row.split_mode in ("row", "tensor") else 1
    if row.is_decode and row.weight_bytes:
        least = row.weight_bytes * _least_share(row) * row.tok_s
        limit = device.bandwidth_gb_s * 1e9 * together if device else _FASTEST_BYTES_S * together
        if least > limit:
            return f"{row.tok_s:g} tok/s would read at least {least / 1e9:,.0f} GB/s of {limit / 1e9:,.0f} GB/s"
    if not row.is_decode and row.n_params and device and device.fp16_matrix_tflops:
        flops = 2 * row.n_params * _active_share(row) * row.tok_s
        limit = 4e12 * device.fp16_matrix_tflops * row.count
        if flops > limit:
            return f"{row.tok_s:g} tok/s would take {flops / 1e12:,.0f} TFLOPS of {limit / 1e12:,.0f} TFLOPS"
    return ""


@functools.cache
def _known(device: str) -> KnownDevice | None:
    return next((known for known in known_devices() if known.id == device), None)


def _least_share(row: BenchedRow) -> float:
    if re.search(r"\bE\dB", row.model):
        return _PER_LAYER_SHARE
    active = _active_share(row)
    return _DENSE_SHARE if active == 1 else active * _EXPERTS_SHARE


def _active_share(row: BenchedRow) -> float:
    """Return the share of the parameters used by a token; 0 for a mixture of experts that does not state it."""
    found = _ACTIVE.search(f" {row.model}")
    billions = float(found[1]) if found else _ACTIVE_BILLIONS.get(row.model)
    if billions is None:
        return 0.0 if re.search(r"moe|\dx\d|mixtral|grok|llama4|deepseek|\?B", row.model) else 1.0
    return min(1.0, billions * 1e9 / row.n_params) if row.n_params else 0.0
