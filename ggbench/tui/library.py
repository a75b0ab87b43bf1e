"""The state of the Library screen: the quants of a model, planned and measured, and the selection.

The most important columns come first, since a narrow table shows no others. A value that was not measured is marked,
and the legend explains the visible marks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.models.catalog import Catalog
from ggbench.models.disk import LocalModel
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show import FITS, FITS_NOT, UNKNOWN
from ggbench.show.columns import speed_text
from ggbench.show.figures import LatencyLine, fitted_line
from ggbench.show.glossary import UNSTEADY
from ggbench.show.metric import has_speed_at, is_extrapolated
from ggbench.show.plan import longest_text
from ggbench.show.text import b_text, planned_speed_text, w_text
from ggbench.sizing.plan_record import PlanRow
from ggbench.sizing.theory.limits import DECODE_POSITIONS
from ggbench.stats.decode_timing import LineFit
from ggbench.text import sanitize
from ggbench.tui.model_list import ModelEntry, Section
from ggbench.tui.tables import Order, TableColumn, has_words
from ggbench.units import counted, format_bytes, format_count, format_length, format_ms, format_number

if TYPE_CHECKING:
    from ggbench.tui.planner import PlannedQuant


_TO_DOWNLOAD, _PROVEN, _BEYOND_TRAINING, _EXTRAPOLATED = "↓", FITS, "*", "~"
_AT_MOST, _AT_LEAST = "≤", "≥"
Selection: TypeAlias = Sequence[tuple[str, tuple[str, ...]]]
"""Models, each with the QUANT arguments to use."""
BASES = {
    "measured": "from runs",
    "forecast": "from a forecast",
    "profile": "from a profile",
    "other runs": "from other models' runs",
    "published": "from others' runs",
    "relatives": "from others' runs on similar devices",
}


class QuantRow(msgspec.Struct, frozen=True):
    name: str
    """The QUANT argument that selects only this quant of its model."""
    plan: PlanRow
    is_here: bool = False
    """Whether its file is on this disk, or a server has it."""
    is_twin: bool = False
    """Whether it is a twin, which ggbench writes itself."""
    measured: QuantSummary | None = None
    """The latest completed decode of the same quant, loaded as planned."""
    searched: QuantSummary | None = None
    """The latest completed search for its largest context, loaded as planned."""
    label: str = ""
    """Name in the table if several quants share one; printable."""

    @property
    def title(self) -> str:
        """Name in the table; printable."""
        return self.label or sanitize(self.plan.quant)

    @property
    def fit(self) -> LineFit | None:
        return None if self.measured is None else self.measured.fit

    @property
    def line(self) -> LatencyLine | None:
        """The measured line; None if W or B is unknown; the bounds are then shown."""
        return fitted_line(self.fit)

    @property
    def max_n_ctx(self) -> int | None:
        """The largest n_ctx proven here; the planned one if none was."""
        return self.plan.planned_n_ctx if self.searched is None else self.searched.max_n_ctx

    @property
    def tok_s(self) -> float | None:
        """Speed with a full context of the planned n_ctx: from the measured W and B, or from the bandwidth."""
        n, line = self.plan.n_ctx, self.speed_line
        return self.bound_at(n) if n is None or line is None else 1e3 / float(line.ms(n))

    @property
    def speed_line(self) -> LatencyLine | None:
        """The measured line; also None if it does not reach the planned n_ctx."""
        n = self.plan.n_ctx
        return self.line if n and self.measured and has_speed_at(self.measured, n - 1) else None

    def is_called(self, name: str) -> bool:
        """Return whether the name, in any case, is its QUANT argument, its quant or its file's name."""
        return name.casefold() in (self.name.casefold(), self.plan.quant, PurePath(self.plan.file).name.casefold())

    def bound_at(self, n: int | None) -> float | None:
        """Return the bandwidth limit in tokens/s at position n; None if not planned."""
        speeds = (*self.plan.decode, *([self.plan.at_n_ctx] if self.plan.at_n_ctx else []))
        return next((speed.tok_s for speed in speeds if speed.n == n), None)

    def needed_bytes(self, n_ctx: int) -> int | None:
        """Return the memory needed at this n_ctx: the plan's, with the cache scaled linearly."""
        plan = self.plan
        if plan.needed_bytes is None or plan.n_ctx is None or plan.kv_bytes_per_token is None:
            return None
        return plan.needed_bytes + (n_ctx - plan.n_ctx) * plan.kv_bytes_per_token

    def either(self, name: str) -> float | None:
        """Return a field of the measured line, or of the bound if nothing was measured."""
        found: float | None = getattr(self.line or self.plan.limit, name, None)
        return found


def _verdict(row: QuantRow) -> str:
    if row.plan.outcome is not Outcome.COMPLETED:
        return f"{FITS_NOT} not planned"
    return {None: "?", True: FITS, False: FITS_NOT}[row.plan.fits]


def _longest(row: QuantRow) -> str:
    if row.searched is None:
        return longest_text(row.plan)
    star = _BEYOND_TRAINING if (row.max_n_ctx or 0) > (row.plan.n_ctx_train or row.max_n_ctx or 0) else ""
    return f"{format_count(row.max_n_ctx)}{_PROVEN if row.searched.max_n_ctx_verified else '?'}{star}"


def _speed(row: QuantRow) -> str:
    if row.tok_s is None or row.speed_line is None or row.measured is None:
        return _bound(_AT_MOST, format_number(row.tok_s))
    mark = f"{UNSTEADY} " if row.measured.unsteady else ""
    mark += _EXTRAPOLATED if is_extrapolated(row.measured, (row.plan.n_ctx or 1) - 1) else ""
    return f"{mark}{format_number(row.tok_s)}"


def _bound(sign: str, text: str) -> str:
    return text if text == UNKNOWN else f"{sign} {text}"


def _w(row: QuantRow) -> str:
    text, limit = w_text(row.fit), row.plan.limit
    return _bound(_AT_MOST, format_number(limit.w_tokens_per_ms if limit else None)) if text == UNKNOWN else text


def _b(row: QuantRow) -> str:
    text, limit = b_text(row.fit), row.plan.limit
    return _bound(_AT_LEAST, format_ms(limit.b_ms if limit else None)) if text == UNKNOWN else text


def _size(row: QuantRow) -> str:
    text = format_bytes(row.plan.file_bytes)
    return text if row.is_here or row.is_twin or text == UNKNOWN else f"{_TO_DOWNLOAD} {text}"


def _bytes(key: str, header: str, name: str) -> TableColumn[QuantRow]:
    return TableColumn(key, header, lambda v: format_bytes(getattr(v.plan, name)), lambda v: getattr(v.plan, name))


def _bound_at(n: int) -> TableColumn[QuantRow]:
    def text(row: QuantRow) -> str:
        return _bound(_AT_MOST, format_number(row.bound_at(n)))

    return TableColumn(f"at_{n}", f"tok/s\nat {format_length(n)}", text, lambda row: row.bound_at(n), descending=True)


def _narrow(expected: str) -> str:
    """Return `0.34–1.04` for `0.59 (0.34–1.04)`, whose width would leave no room for max n_ctx at 80 columns."""
    value, bracket, interval = expected.partition(" (")
    mark = f"{UNSTEADY} " if value.startswith(UNSTEADY) else ""
    return f"{mark}{interval.removesuffix(')')}" if bracket else expected


def quant_columns(n_ctx: int | None, *, has_expected: bool = False) -> tuple[TableColumn[QuantRow], ...]:
    """Return the columns of a plan for this n_ctx, the most important first; a unit is on a header's second line.

    `has_expected` is whether any quant has an expected speed.
    """
    expected: TableColumn[QuantRow] = TableColumn(
        "expected",
        "expected\ntok/s",
        lambda v: _narrow(planned_speed_text(v.plan.expected)),
        lambda v: v.plan.expected.tok_s if v.plan.expected else None,
        descending=True,
    )
    decoded: TableColumn[QuantRow] = TableColumn(
        "tok_s",
        "decoded\ntok/s",
        lambda v: speed_text(v.measured) if v.measured else UNKNOWN,
        lambda v: v.measured.latency.tok_s if v.measured and v.measured.latency else None,
        descending=True,
    )
    there = "" if n_ctx is None else f"\nat {format_length(n_ctx)}"
    speed: TableColumn[QuantRow] = TableColumn("speed", f"tok/s{there}", _speed, lambda v: v.tok_s, descending=True)
    longest: TableColumn[QuantRow] = TableColumn(
        "n_ctx", "max\nn_ctx", _longest, lambda v: v.max_n_ctx, descending=True
    )
    return (
        TableColumn("quant", "quant", lambda v: v.title, lambda v: v.title, right_aligned=False),
        TableColumn("bpw", "BPW\nbits", lambda v: format_number(v.plan.bpw), lambda v: v.plan.bpw),
        _bytes("memory", f"memory{there}", "needed_bytes"),
        TableColumn("fits", "fits", _verdict, lambda v: v.plan.left_bytes, right_aligned=False, descending=True),
        *((expected, longest, speed) if has_expected else (speed, longest)),
        TableColumn("w", "W\ntok/ms", _w, lambda v: v.either("w_tokens_per_ms"), descending=True),
        TableColumn("b", "B\nms", _b, lambda v: v.either("b_ms")),
        TableColumn("file", "size", _size, lambda v: v.plan.file_bytes),
        decoded,
        _bytes("weights", "weights", "device_weight_bytes"),
        _bytes("kv", f"KV{there}", "device_kv_bytes"),
        _bytes("compute", "compute", "compute_bytes"),
        *(_bound_at(n) for n in DECODE_POSITIONS if n != n_ctx),
    )


def quants_on_disk(local: Iterable[LocalModel], catalog: Catalog) -> frozenset[tuple[str, str]]:
    """Return (model, quant) of every measurable file on this disk, under every name of the model in the Library."""
    ids = {model.repo.lower(): model.id for model in catalog if model.repo}
    here = set()
    for model in local:
        if model.quant is not None and model.paths and not model.reason:
            here.add((model.model, model.quant))
            if (model_id := ids.get(model.model.lower())) is not None:
                here.add((model_id, model.quant))
    return frozenset(here)


_Key = tuple[object, ...]


class LatestResults:
    """The latest completed decode and search of each quant on this machine.

    A run applies to a plan only if it was loaded the same way: with another KV cache type or placement of layers, speed
    and memory differ.
    """

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        """Find them in `runs`: completed here, newest first."""
        self._decodes: dict[_Key, QuantSummary] = {}
        self._searches: dict[_Key, QuantSummary] = {}
        for run in runs:
            if not run.head.setup.loads_gguf:
                continue
            setup, subject = LlamaConfig.of(run.head.setup), run.subject
            summary = QuantSummary.of([run])
            for name in _names(subject.model, subject.quant, subject.file):
                if summary.fit is not None:
                    loaded = _of_speed(setup)
                    self._decodes.setdefault((name, loaded), summary)
                    self._decodes.setdefault((name, replace(loaded, threads=None, threads_batch=None)), summary)
                if summary.max_n_ctx is not None:
                    self._searches.setdefault((name, _of_memory(setup)), summary)

    def find(
        self, model: str, quant: str, file: str, setup: LlamaConfig
    ) -> tuple[QuantSummary | None, QuantSummary | None]:
        """Return the latest decode and the latest search without a ceiling, by file, or by model and quant."""
        names, speed, memory = _names(model, quant, file), _of_speed(setup), _of_memory(replace(setup, n_ctx=None))
        decodes = (self._decodes.get((name, speed)) for name in names)
        searches = (self._searches.get((name, memory)) for name in names)
        return next(filter(None, decodes), None), next(filter(None, searches), None)


def _names(model: str, quant: str, file: str) -> tuple[object, ...]:
    return (*([file] if file else []), (sanitize(model), quant))


def _of_memory(setup: LlamaConfig) -> LlamaConfig:
    """Return the setup without fields that change no buffer; `n_ctx` is a search's ceiling."""
    return replace(setup, threads=None, threads_batch=None, mmap=True, mlock=False)


def _of_speed(setup: LlamaConfig) -> LlamaConfig:
    """Return the setup without fields that do not change a decode's speed; a plan without threads matches any."""
    return replace(setup, n_ctx=None, n_batch=2048, n_ubatch=512, mmap=True, mlock=False, memory_limit_bytes=None)


class Library:
    """The chosen model with the plans of its quants, their sorting and filter, a context, and the marks of all
    models.
    """

    def __init__(self) -> None:
        self.entry: ModelEntry | None = None
        self.rows: dict[str, QuantRow] = {}
        """Quants of the chosen model, by name, in the order of planning."""
        self.n_ctx: int | None = None
        """The planned context if the arrow keys changed it; None for that of the options."""
        self.options = LlamaConfig()
        self.order: Order[QuantRow] = Order(quant_columns(None))
        self.words = ""
        self.is_fits_only = False
        self.all_marks: dict[str, dict[str, None]] = {}
        """Names of the marked quants by model, in the order of marking."""
        self._on_disk: Collection[tuple[str, str]] = frozenset()
        self._results = LatestResults()

    @property
    def setup(self) -> LlamaConfig:
        return replace(self.options, n_ctx=self.n_ctx or self.options.n_ctx)

    @property
    def marks(self) -> dict[str, None]:
        return {} if self.entry is None else self.all_marks.setdefault(self.entry.model, {})

    @property
    def can_pull(self) -> bool:
        return any(not row.is_here and not row.is_twin for row in self.rows.values())

    def choose(self, entry: ModelEntry) -> bool:
        """Choose a model; return False if it is already chosen and planned."""
        if self.entry is not None and entry.key == self.entry.key and self.rows:
            return False
        self.entry, self.rows, self.n_ctx = entry, {}, None
        return True

    def add(self, planned: PlannedQuant) -> None:
        self.rows[planned.name] = self._completed(QuantRow(planned.name, planned.row))

    def update(
        self, *, on_disk: Collection[tuple[str, str]] | None = None, results: LatestResults | None = None
    ) -> None:
        """Update the quants on this disk and the measurements, each if given."""
        self._on_disk = self._on_disk if on_disk is None else on_disk
        self._results = results or self._results
        self.rows = {name: self._completed(row) for name, row in self.rows.items()}

    def toggle_mark(self, name: str) -> None:
        if name in self.marks:
            del self.marks[name]
        else:
            self.marks[name] = None

    def selection(self, cursor: QuantRow | None) -> Selection:
        """Return the marked quants, or the one at the cursor if none is marked."""
        marked = [(model, tuple(names)) for model, names in self.all_marks.items() if names]
        if marked or cursor is None or self.entry is None:
            return marked
        return [(self.entry.model, (cursor.name,))]

    def planned_setup(self, selection: Selection) -> LlamaConfig:
        """Return the planned setup of a selection; the n_ctx of the arrow keys is only for the chosen model."""
        planned = {self.entry.model} if self.entry is not None else set()
        return self.setup if {model for model, _ in selection} <= planned else self.options

    def listed(self) -> list[QuantRow]:
        """Return the quants to show, sorted and filtered, for the columns of `order`."""
        rows = list(self.rows.values())
        n_ctx = next((row.plan.n_ctx for row in rows if row.plan.n_ctx), None)
        self.order.columns = quant_columns(n_ctx, has_expected=any(row.plan.expected for row in rows))
        return self.order.sorted(row for row in self._matching() if not (self.is_fits_only and row.plan.fits is False))

    @property
    def hidden(self) -> list[str]:
        """The numbers of hidden quants, a text for each reason."""
        n_listed, n_matching = len(self.listed()), len(self._matching())
        counts = [(n_matching - n_listed, "that do not fit (f)"), (len(self.rows) - n_matching, "by the filter")]
        return [f"{format_count(count)} hidden {reason}" for count, reason in counts if count]

    def status(self, *, is_machine_known: bool, is_planning: bool) -> str:
        """Return one line: the model, the state of its plan, and how many quants are shown, hidden and marked."""
        entry, n_marked = self.entry, sum(map(len, self.all_marks.values()))
        if entry is None:
            return "choose a model on the left"
        if entry.reason:
            return f"✗ {entry.title}: {entry.reason}"
        if not is_machine_known:
            return f"{entry.title} · planned once this machine's memory is known"
        if is_planning and not self.rows:
            return f"{entry.title} · {'reading headers from the Hub…' if entry.needs_network else 'planning…'}"
        parts = (
            entry.title,
            counted(len(self.listed()), "quant") if self.rows else "",
            *self.hidden,
            f"{format_count(n_marked)} marked" if n_marked else "",
            describe_config(self.options),
        )
        return " · ".join(filter(None, parts))

    def legend(self, *, has_bandwidth: bool = True) -> str:
        """Return the meaning of the marks, and the reason for missing speeds, in one line; empty without either."""
        rows = self.rows.values()
        texts = [column.text(row) for row in rows for column in quant_columns(None)[1:]]
        trained = sorted({row.plan.n_ctx_train for row in rows if row.plan.n_ctx_train})
        meanings = {
            _AT_MOST: "≤ ≥ bandwidth limit, not measured",
            UNSTEADY: f"{UNSTEADY} not steady",
            _EXTRAPOLATED: "~ from W and B, beyond the measured range",
            _BEYOND_TRAINING: f"* beyond the training context {' and '.join(map(format_count, trained))}",
            _TO_DOWNLOAD: "↓ to download",
        }
        parts = [meaning for mark, meaning in meanings.items() if any(mark in text for text in texts)]
        if any(row.plan.reached_ceiling for row in rows):
            parts.append("≥ before an n_ctx: nothing longer was tried")
        if any(row.searched is not None for row in rows):
            parts.insert(0, f"max n_ctx {_PROVEN} found by maxctx, ? not proven by a decode")
        if bases := dict.fromkeys(row.plan.expected.speed_basis for row in rows if row.plan.expected):
            parts.append(f"expected: {', '.join(BASES[basis] for basis in bases)}")
        if rows and not has_bandwidth:
            parts.append("no speeds without a bandwidth: g chooses a card")
        return " · ".join(parts)

    def _matching(self) -> list[QuantRow]:
        """Return the quants matching the filter, with labels if several share a quant or a server has them."""
        times = Counter(row.plan.quant for row in self.rows.values())
        rows = []
        for row in self.rows.values():
            is_named = times[row.plan.quant] > 1 or row.plan.provenance == "endpoint"
            rows.append(replace(row, label=sanitize(row.name) if is_named else ""))
        return [row for row in rows if has_words(f"{row.title} {row.name}", self.words)]

    def _completed(self, row: QuantRow) -> QuantRow:
        """Return the row, adding its measurements and whether its file is on this disk."""
        if (entry := self.entry) is None:
            return row
        is_here = entry.section in (Section.DISK, Section.SERVERS) or (entry.model, row.name) in self._on_disk
        measured, searched = self._results.find(entry.model, row.plan.quant, row.plan.file, self.setup)
        return replace(
            row,
            is_twin=entry.section is Section.TWINS,
            is_here=is_here or bool(row.plan.file),
            measured=measured,
            searched=searched,
        )


def describe_config(config: LlamaConfig) -> str:
    """Return the settings that are not the default, such as `KV q8_0, limit 12.0 GiB`."""
    default = LlamaConfig()
    same = config.type_k == config.type_v
    parts = {
        "type_k": f"KV {config.type_k}" if same else f"K {config.type_k}",
        "type_v": "" if same else f"V {config.type_v}",
        "memory_limit_bytes": f"limit {format_bytes(config.memory_limit_bytes)}",
        "n_ctx": f"n_ctx {format_count(config.n_ctx)}",
        "flash_attn": f"flash attention {config.flash_attn}",
        "n_gpu_layers": f"{config.n_gpu_layers} layers on the GPU",
        "n_cpu_moe": f"experts of {config.n_cpu_moe} layers on the CPU",
        "threads": f"{config.threads} threads",
        "swa_full": "full SWA cache",
        "rpc_servers": f"devices of {' and '.join(config.rpc_servers)}",
    }
    texts = [text for name, text in parts.items() if getattr(config, name) != getattr(default, name)]
    return ", ".join(filter(None, texts))
