"""JSON of measured runs: common parts of all kinds, measured quants, and lists of runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec
from msgspec.structs import replace

from ggbench.engines.contract import EngineConfig
from ggbench.engines.events import Memory
from ggbench.engines.llama.config import LlamaConfig
from ggbench.machine.records import MachineReading
from ggbench.models.published.selection import NearRow
from ggbench.models.subject import Subject
from ggbench.runs.run import Run, RunHead
from ggbench.runs.store.runs import StoredRun
from ggbench.runs.summary import QuantSummary
from ggbench.show.document import (
    Document,
    Field,
    Get,
    RecordDocument,
    Shape,
    field,
    many,
    of,
    rows_document,
    within,
)
from ggbench.show.figure import Figure, figure_values, figures_type
from ggbench.show.published import AGAINST
from ggbench.show.run_figures import FIGURES, figures
from ggbench.stats.decode_timing import LatencySummary
from ggbench.stats.requests import RequestRates

NUMBER = float | None
ENDS = tuple[float | None, float | None] | None
"""A 95 % interval; an end of null is unbounded."""


def subject(names: str) -> tuple[Field, ...]:
    return of(Subject, names, lambda run: run.subject)


def memory(names: str) -> tuple[Field, ...]:
    return of(Memory, names, lambda run: run.memory)


def ends(expected: Any) -> tuple[float, float] | None:  # noqa: ANN401 - a value with `low` and `high`, or None
    return None if expected is None else (expected.low, expected.high)


def expected(name: str, about: str, get: Get, interval: str = "") -> tuple[Field, ...]:
    """Return the fields of a value and its interval, `interval` or `NAME_ci95`; all null if `get` returns None."""
    value = field(name, NUMBER, about, lambda root: (found := get(root)) and found.value)
    return (*value, *field(interval or f"{name}_ci95", ENDS, get=lambda root: ends(get(root))))


def _of_decode(name: str) -> Get:
    return lambda summary: summary.decode and getattr(summary.decode, name)


_PREFILL_MS = field("prefill_ms", NUMBER, "Median time to read the prompt.", _of_decode("prefill_ms"))
NAMED = subject("model quant file provenance=source")
MEASURED_FILE = (*NAMED, *subject("file_bytes n_params bpw weight_bytes kv_bytes_per_token"))
CACHE_TYPES = of(LlamaConfig, "type_k type_v", lambda run: run.head.setup, maybe=True)
CONFIG = field(
    "config", EngineConfig, "Settings of the load, by the engine's own names.", lambda run: run.head.setup
)
ORIGIN = (
    *of(Run, "outcome reason?"),
    *CONFIG,
    *subject("header_sha256?"),
    *of(RunHead, "environment command", lambda run: run.head),
    *of(Run, "run_id"),
)
_STORED = Shape(
    "Stored",
    "",
    field("readings", list[MachineReading], "The machine during the run."),
    of(StoredRun, "state started_at finished_at"),
)


class RunDocuments(msgspec.Struct, frozen=True, dict=True):
    """The documents of a kind of runs: their figures by key, and under `run` the whole record."""

    kind: str
    own: tuple[Figure[QuantSummary], ...]
    """Figures besides those of the file and of every run."""
    about: str
    takes_several: bool = False
    """Whether its command measures several quants."""

    @property
    def figures(self) -> tuple[Figure[QuantSummary], ...]:
        return tuple({each.key: each for each in (*_FILE, *self.own, *_ENDING)}.values())

    @cached_property
    def one(self) -> RecordDocument:
        return RecordDocument(self.kind, f"{self.kind} MODEL QUANT", self.about, self._type({}))

    @cached_property
    def several(self) -> RecordDocument | None:
        if not self.takes_several:
            return None
        return several_document(f"{self.kind}.all", f"{self.about} One for each quant.", self.one.kind)

    @cached_property
    def stored(self) -> RecordDocument:
        about = f"{self.about} As stored."
        return RecordDocument(f"results.{self.kind}", "results show ID", about, self._type(_AS_STORED))

    @property
    def all(self) -> tuple[RecordDocument, ...]:
        return (self.one, *([self.several] if self.several else []), self.stored)

    def _type(self, more: Mapping[str, Any]) -> type[msgspec.Struct]:
        return figures_type(
            self.kind.title(), self.figures, self.about, {"run": Run, **more, "against": list[NearRow] | None}
        )

    def value(self, run: Run, **more: object) -> dict[str, object]:
        """Return the members of a run's document."""
        return figure_values(self.figures, QuantSummary.of([run])) | {"run": run} | more


_PROVENANCE = replace(FIGURES["source"], key="provenance")
_REASON = Figure[QuantSummary](
    "reason", "reason", lambda summary: summary.run.reason or None, meaning="Why the run did not complete."
)
_FILE = (
    *figures("model quant file"),
    _PROVENANCE,
    *figures("file_bytes n_params bpw weight_bytes kv_bytes_per_token"),
)
_ENDING = (*figures("outcome note"), _REASON, *figures("run_id command"))
MEASURED = (*_FILE, *(each for each in FIGURES.values() if each.key != "source"), _REASON)
"""All figures that a quant may have."""
_AS_STORED = {"state": str, "started_at": str, "finished_at": str | None, "readings": list[MachineReading]}


def several_document(name: str, about: str, row: type[msgspec.Struct], **more: type) -> RecordDocument:
    """Return the document of several quants of a model, in rows of this type."""
    return rows_document(name, f"{name.partition('.')[0]} MODEL QUANT...", about, row, model=str, **more)


class ShapedDocuments(msgspec.Struct, frozen=True, kw_only=True):
    shape: Shape
    one: Document
    stored: Document
    several: Document | None = None
    """The document printed for several quants; None if the command takes only one."""
    others: tuple[Document, ...] = ()
    root: Callable[[Run], object] = lambda run: run
    """Returns the source object of the shape."""

    @property
    def all(self) -> tuple[Document, ...]:
        return (self.one, *([self.several] if self.several else []), self.stored, *self.others)

    def value(self, run: Run, **given: object) -> dict[str, object]:
        return self.shape.value(self.root(run), **given)


def run_documents(kind: str, shape: Shape, *, stored: str = "", is_swept: bool = False) -> ShapedDocuments:
    """Return the documents of a kind: `kind`, `kind.all` if several quants are measured, and `results.stored`."""
    rows = (field("model", str), field("rows", many(shape)))
    several = Document(f"{kind}.all", f"{kind} MODEL QUANT...", f"{shape.about} One for each quant.", *rows)
    one = Document(kind, f"{kind} MODEL QUANT", shape.about, shape.fields)
    shown = stored_document(stored or kind, shape)
    return ShapedDocuments(shape=shape, one=one, several=several if is_swept else None, stored=shown)


def stored_document(name: str, shape: Shape) -> Document:
    return Document(
        f"results.{name}", "results show ID", f"{shape.about} As stored.", shape.fields, _STORED.fields
    )


def stored_value(stored: StoredRun, readings: Sequence[MachineReading]) -> dict[str, object]:
    return _STORED.value(stored, readings=list(readings))


def _n_gen(summary: QuantSummary) -> int | None:
    if summary.decode:
        return summary.n_gen
    return 0 if summary.prefills else None


_N_GEN = field(
    "n_gen",
    int | None,
    "Tokens decoded in one repetition, the longest if the run was cut short; 0 if only prompts were read.",
    _n_gen,
)
QUANT = Shape(
    "Quant",
    "A measured quant.",
    subject("model quant file provenance=source file_bytes n_params bpw weight_bytes"),
    memory("kv_bytes"),
    subject("kv_bytes_per_token"),
    memory("compute_bytes other_bytes peak_bytes buffers n_ctx n_batch n_ubatch"),
    of(QuantSummary, "max_n_ctx max_n_ctx_verified max_n_ctx_reason?"),
    field("n_prompt", int | None, "Tokens in the cache before the first timed one.", _of_decode("n_prompt")),
    _N_GEN,
    of(QuantSummary, "repeat"),
    _PREFILL_MS,
    of(QuantSummary, "prefills depths fit"),
    of(
        LatencySummary,
        "p50_ms p95_ms p99_ms tok_s tok_s_ci95 sample_p50_ms",
        lambda summary: summary.latency,
        maybe=True,
    ),
    field(
        "n_seqs",
        int | None,
        "Users that decoded at once; the speed above is what each got.",
        _of_decode("n_seqs"),
    ),
    field("tok_s_together", NUMBER, "Tokens/s of several users together.", _of_decode("tok_s_together")),
    field("requests", RequestRates | None, "A server's answers to several users.", _of_decode("requests")),
    of(QuantSummary, "limit"),
    field(
        "w_ratio",
        NUMBER,
        "Measured W / limit of W: the share of the memory bandwidth (MBU); 1.0 is the physical limit.",
        _of_decode("w_ratio"),
    ),
    field(
        "b_ratio",
        NUMBER,
        "Limit of B / measured B: the share of the memory bandwidth (MBU); 1.0 is the physical limit.",
        _of_decode("b_ratio"),
    ),
    of(QuantSummary, "b_w16_ms unsteady? serving gpu_use"),
    memory("flash_attn swa_cells"),
    within(lambda summary: summary.run, ORIGIN),
    AGAINST,
)


def quant_documents(kind: str, about: str) -> RunDocuments:
    """Return the documents of runs shown in a table of quants."""
    return RunDocuments(kind, MEASURED, about)


BENCH = several_document(
    "bench",
    "The whole table of a model.",
    figures_type("BenchedQuant", MEASURED, "", {"runs": list[Run], "against": list[NearRow] | None}),
    n_gen=int,
)


def bench_row(summary: QuantSummary, **more: object) -> dict[str, object]:
    """Return a row of `BENCH`."""
    return figure_values(MEASURED, summary) | {"runs": summary.runs} | more
