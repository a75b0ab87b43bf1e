"""The state of the Library screen: the needs, the quants of a model in the order of the pick, and the selection.

A number that was measured here is bold, one that is estimated begins with ~, and a bound is dim and begins with ≤ or ≥.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec.structs import replace

from ggbench.decisions.pick.needs import Needs
from ggbench.decisions.pick.record import Candidate, Checked, Pick
from ggbench.decisions.pick.wording import candidate_name
from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.models.catalog import Catalog
from ggbench.models.disk import LocalModel
from ggbench.show import FITS, FITS_NOT, UNKNOWN
from ggbench.show.glossary import UNSTEADY
from ggbench.show.names import kv_name
from ggbench.show.plan import WHOLE_TRAINING
from ggbench.sizing.plan_record import Budget, PlanRow
from ggbench.stats.speed_estimate import SpeedBasis
from ggbench.text import sanitize, shorten_middle
from ggbench.tui.model_list import ModelEntry, Section
from ggbench.tui.tables import Order, TableColumn, has_words
from ggbench.units import counted, format_bytes, format_count, format_fixed, format_number

if TYPE_CHECKING:
    from ggbench.decisions.pick.candidates import PickRequest


_AT_MOST, _AT_LEAST, _ABOUT = "≤", "≥", "~"
_TO_DOWNLOAD = "↓"
_BOLD, _DIM = "bold", "dim"
PICKED = "★"
NAME_MARGIN = 2
"""Characters before a name, for its marks."""
_MOST_TITLE = 32
"""Characters of a model's name above its quants, which leave room for the state of its plan at 80 columns."""
Selection: TypeAlias = Sequence[tuple[str, tuple[str, ...]]]
"""Models, each with the QUANT arguments to use."""
_BASES: Mapping[SpeedBasis, str] = {
    "forecast": "a forecast",
    "profile": "a profile",
    "published": "others' runs",
    "relatives": "others' runs on similar devices",
    "one user": "the speed of one user",
    "bound": "the bandwidth limit",
}


def beyond_training(pick: Pick) -> str:
    """Return a sentence if the needs are longer than the pick was trained for; else nothing."""
    trained = None if pick.recommended is None else pick.recommended.candidate.row.n_ctx_train
    if trained is None or not pick.needs.exceeds(trained):
        return ""
    return (
        f"No pick: the model was trained for {format_count(trained)} tokens, the need is"
        f" {format_count(pick.needs.n_ctx_slot)}; choose another model, or other needs (e)."
    )


def speed_from(basis: SpeedBasis, source: str) -> str:
    """Return what a speed is from: `run 12`, `runs of its other quants`, `a profile`. Printable."""
    return _BASES.get(basis) or sanitize(source.partition(" reach")[0])  # without the share of the bandwidth


class QuantRow(msgspec.Struct, frozen=True):
    """A quant, run in the best way for the needs."""

    candidate: Candidate
    is_here: bool = False
    """Whether its file is on this disk, or a server has it."""
    is_twin: bool = False
    """Whether ggbench has to write a twin to run it, as that was asked for, or nobody published the model."""
    meets: bool | None = None
    """Whether it meets the needs; None if unknown."""
    is_beyond: bool = False
    """Whether the needs are longer than the training context."""
    label: str = ""
    """Name in the table if several quants share one; printable."""

    @property
    def name(self) -> str:
        """The QUANT argument that selects only this quant of its model."""
        return self.candidate.quant

    @property
    def plan(self) -> PlanRow:
        return self.candidate.row

    @property
    def title(self) -> str:
        """Name in the table; printable."""
        return self.label or sanitize(self.plan.quant)

    @property
    def speed_note(self) -> str:
        """What the speed is from, or what a disturbed run says instead; empty for a bound. Printable."""
        speed, disturbed = self.candidate.speed, self.candidate.disturbed
        if disturbed is not None:
            number = format_number(disturbed.tok_s.value)
            return f"{UNSTEADY} {number} tok/s by {speed_from(disturbed.basis, disturbed.source)}, disturbed"
        if speed is None or speed.is_bound:
            return ""
        source = speed_from(speed.basis, speed.source)
        return f"tok/s measured by {source}" if speed.basis == "measured" else f"{_ABOUT}tok/s from {source}"

    def is_called(self, name: str) -> bool:
        """Return whether the name, in any case, is its QUANT argument, its quant or its file's name."""
        return name.casefold() in (self.name.casefold(), self.plan.quant, PurePath(self.plan.file).name.casefold())

    def needed_bytes(self, n_ctx: int) -> int | None:
        """Return the memory needed at this n_ctx: the plan's, with the cache scaled linearly."""
        plan = self.plan
        if plan.needed_bytes is None or plan.n_ctx is None or plan.kv_bytes_per_token is None:
            return None
        return plan.needed_bytes + (n_ctx - plan.n_ctx) * plan.kv_bytes_per_token


class QuantColumn(TableColumn[QuantRow], frozen=True):
    """A column of a fixed width, so that nothing moves while rows arrive."""

    width: int = 8
    """In characters; longer texts end with `…`."""
    style: Callable[[QuantRow], str] = lambda _row: ""


def _fits(row: QuantRow) -> str:
    """Return `✓`, with how it is run unless that is llama.cpp's default: `✓ KV q8_0`, `✓ ncmoe 24`."""
    if row.plan.outcome is not Outcome.COMPLETED:
        return f"{FITS_NOT} failed"
    if row.is_beyond and row.plan.fits:
        return f"{FITS_NOT} ctx"
    how = kv_name("", *row.candidate.cache).strip(" ,")
    options = (option.removeprefix("-") for option in row.candidate.options)
    return " ".join(filter(None, ({None: "?", True: FITS, False: FITS_NOT}[row.plan.fits], how, *options)))


def _tok_s(row: QuantRow) -> str:
    speed, expected = row.candidate.speed, row.plan.expected
    if speed is None:
        return UNKNOWN
    sign = _AT_MOST if speed.is_bound else "" if speed.basis == "measured" else _ABOUT
    mark = UNSTEADY if expected is not None and not expected.is_steady else ""
    return f"{mark}{sign}{format_number(speed.tok_s.value)}"


def _speed_style(row: QuantRow) -> str:
    speed = row.candidate.speed
    return "" if speed is None else _DIM if speed.is_bound else _BOLD if speed.basis == "measured" else ""


def _speed_value(row: QuantRow) -> float | None:
    return None if row.candidate.speed is None else row.candidate.speed.tok_s.value


def _speed_interval(row: QuantRow) -> str:
    """Return `0.34–1.04`, the 95 % interval; empty for a bound."""
    speed = row.candidate.speed
    if speed is None or speed.is_bound:
        return ""
    return f"{format_number(speed.tok_s.low)}–{format_number(speed.tok_s.high)}"


def _turn(row: QuantRow) -> str:
    speed = row.candidate.speed
    if speed is None or speed.turn_s is None:
        return UNKNOWN
    return f"{'' if speed.basis == 'measured' else _ABOUT}{format_number(speed.turn_s.value)}"


def _turn_value(row: QuantRow) -> float | None:
    speed = row.candidate.speed
    return None if speed is None or speed.turn_s is None else speed.turn_s.value


def _context(row: QuantRow) -> str:
    """Return the longest context, e.g. `50k` of 1,024 tokens; with a star if the whole training context fits, `≥` if
    nothing longer was tried.
    """
    longest = row.candidate.max_n_ctx
    if longest is None:
        return UNKNOWN
    used, is_whole = row.plan.used_of(longest), longest >= (row.plan.trained_n_ctx or math.inf)
    is_least = row.plan.reached_ceiling and row.candidate.probed_by is None and not is_whole
    text = f"{used // 1024}k" if used >= 1024 else format_count(used)
    return f"{_AT_LEAST if is_least else ''}{text}{WHOLE_TRAINING if is_whole else ''}"


def _kld(row: QuantRow) -> str:
    """Return the loss in nats; as a least if the cache's part is unknown."""
    candidate, least = row.candidate, row.candidate.least_loss
    if least is None:
        return UNKNOWN
    sign = _AT_LEAST if candidate.loss is None else "" if _is_loss_measured(candidate) else _ABOUT
    is_long = 0 < least.value < 1e-3
    return f"{sign}{format_fixed(least.value, 4) if is_long else format_number(least.value, 2)}"


def _kld_value(row: QuantRow) -> float | None:
    return None if row.candidate.least_loss is None else row.candidate.least_loss.value


def _is_loss_measured(candidate: Candidate) -> bool:
    parts = (candidate.weights_loss, candidate.cache_loss)
    return candidate.joint_loss is not None or all(each and each.basis != "published typical" for each in parts)


def _kld_style(row: QuantRow) -> str:
    candidate = row.candidate
    return _DIM if candidate.loss is None else _BOLD if _is_loss_measured(candidate) else ""


def _file(row: QuantRow) -> str:
    if row.is_here:
        return "here"
    return "twin" if row.is_twin else f"{_TO_DOWNLOAD}{format_bytes(row.plan.file_bytes)}"


def _basis(row: QuantRow) -> str:
    speed = row.candidate.speed
    return UNKNOWN if speed is None else speed_from(speed.basis, speed.source)


def _bytes(name: str, header: str, width: int = 9) -> QuantColumn:
    return QuantColumn(
        name, header, lambda row: format_bytes(getattr(row.plan, name)), lambda row: getattr(row.plan, name),
        width=width,
    )  # fmt: skip


_ESSENTIAL = (
    QuantColumn("quant", "quant", lambda row: row.title, lambda row: row.title, False, width=12),
    QuantColumn("fits", "fits", _fits, lambda row: row.plan.left_bytes, False, True, width=9),
    QuantColumn("tok_s", "tok/s", _tok_s, _speed_value, True, True, width=6, style=_speed_style),
    QuantColumn(
        "n_ctx", "context", _context, lambda row: row.candidate.max_n_ctx, True, True, width=7,
        style=lambda row: _BOLD if row.candidate.probed_by is not None else "",
    ),
    QuantColumn("kld", "KLD", _kld, _kld_value, width=7, style=_kld_style),
    QuantColumn("file", "file", _file, lambda row: 0 if row.is_here else row.plan.file_bytes, width=10),
)  # fmt: skip
_BY_WORTH = (
    _bytes("left_bytes", "left"),
    _bytes("needed_bytes", "memory"),
    _bytes("file_bytes", "size"),
    QuantColumn("turn", "turn s", _turn, _turn_value, width=6, style=_speed_style),
    QuantColumn("bpw", "BPW", lambda row: format_number(row.plan.bpw), lambda row: row.plan.bpw, width=5),
    QuantColumn("interval", "95 % tok/s", _speed_interval, _speed_value, width=11),
    QuantColumn("basis", "speed from", _basis, _basis, width=25),
    _bytes("device_weight_bytes", "weights"),
    _bytes("device_kv_bytes", "KV"),
    _bytes("compute_bytes", "compute"),
)  # fmt: skip
"""The columns that a wider table has too, the most important first."""
COLUMNS = {column.key: column for column in (*_ESSENTIAL, *_BY_WORTH)}


def quant_columns(rows: Sequence[QuantRow], width: int, gap: int) -> tuple[QuantColumn, ...]:
    """Return the columns of a table of this width with `gap` blanks between two.

    Names, and how they fit, take what they need of what the essential columns leave, and if that is too little, of what
    names and files do not need; the rest is for other columns.
    """
    widths = {column.key: column.width for column in _ESSENTIAL}
    room = width - sum(widths.values()) - gap * len(widths)
    needed = {
        key: max([len(COLUMNS[key].header) + 1, *(len(COLUMNS[key].text(row)) for row in rows)]) for key in widths
    }
    needed["quant"] += NAME_MARGIN
    for key in ("quant", "fits") if rows else ():
        for other in ("quant", "file"):
            spare = max(0, min(widths[other] - needed[other], needed[key] - widths[key] - room))
            widths[other], room = widths[other] - spare, room + spare
        more = max(0, min(needed[key] - widths[key], room))
        widths[key], room = widths[key] + more, room - more
    chosen = [replace(column, width=widths[column.key]) for column in _ESSENTIAL]
    for column in _BY_WORTH:
        if column.width + gap > room:
            break
        chosen.append(column)
        room -= column.width + gap
    return tuple(chosen)


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


class Library:
    """The needs, the chosen model with its quants and their sorting and filter, and the marks of all models."""

    def __init__(self) -> None:
        self.entry: ModelEntry | None = None
        self.rows: dict[str, QuantRow] = {}
        """Quants of the chosen model, by name, in the order of the pick; until it is made, of planning."""
        self.pick: Pick | None = None
        """None until all quants are planned."""
        self.needs = Needs()
        self.options = LlamaConfig()
        self.order: Order[QuantRow] = Order(_ESSENTIAL)
        self.words = ""
        self.is_fits_only = False
        self.all_marks: dict[str, dict[str, None]] = {}
        """Names of the marked quants by model, in the order of marking."""
        self._on_disk: Collection[tuple[str, str]] = frozenset()

    @property
    def setup(self) -> LlamaConfig:
        """The options, with the context of the needs if they name one."""
        return replace(self.options, n_ctx=self.needs.given_n_ctx or self.options.n_ctx)

    @property
    def _all_needs(self) -> Needs:
        """The needs, with the context of the options if they name none."""
        return replace(self.needs, given_n_ctx=self.setup.n_ctx)

    @property
    def marks(self) -> dict[str, None]:
        return {} if self.entry is None else self.all_marks.setdefault(self.entry.model, {})

    @property
    def can_pull(self) -> bool:
        return any(not row.is_here and not row.is_twin for row in self.rows.values())

    @property
    def picked(self) -> QuantRow | None:
        """The quant to run; None if none meets the needs."""
        if self.pick is None or self.pick.recommended is None or beyond_training(self.pick):
            return None
        chosen = self.pick.recommended.candidate
        return next((row for row in self.rows.values() if row.candidate.name == chosen.name), None)

    def request(self, budget: Budget) -> PickRequest:
        """Return what to pick for: any KV cache, unless the options name one."""
        from ggbench.decisions.pick.candidates import CACHE_TYPES, PickRequest, caches_of

        options, default = self.options, LlamaConfig()
        given = options.type_k, options.type_v
        types = [(each, each) for each in CACHE_TYPES] if given == (default.type_k, default.type_v) else [given]
        return PickRequest(self._all_needs, budget, options, caches_of(types, options, on_gpu=budget.on_gpu))

    def choose(self, entry: ModelEntry) -> bool:
        """Choose a model; return False if it is already chosen and planned, with the same quants."""
        before = self.entry
        if before is not None and (entry.key, entry.quants) == (before.key, before.quants) and self.rows:
            return False
        self.entry = entry
        self.forget()
        return True

    def forget(self) -> None:
        """Drop the quants, whose figures no longer hold."""
        self.rows, self.pick = {}, None

    def add(self, best: Checked) -> None:
        """Add a quant, or replace it in its place."""
        row = self.row_of(best.candidate, best.meets)
        self.rows[row.name] = row

    def take(self, pick: Pick, ranked: Sequence[Checked]) -> None:
        self.pick = pick
        rows = (self.row_of(best.candidate, best.meets) for best in ranked)
        self.rows = {row.name: row for row in rows}

    def update(self, on_disk: Collection[tuple[str, str]]) -> bool:
        """Update the quants on this disk; return whether one of them was planned as a file to download."""
        self._on_disk, before = on_disk, self.rows
        self.rows = {name: replace(row, is_here=self._is_here(row.candidate)) for name, row in before.items()}
        arrived = (row.candidate.to_run for name, row in self.rows.items() if row.is_here and not before[name].is_here)
        return any(file is not None and not file.is_here for file in arrived)

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
        """Return the setup in which a selection is measured: one quant as it is shown, several with the options."""
        names = [name for model, names in selection for name in names if self.entry and model == self.entry.model]
        row = self.rows.get(names[0]) if len(names) == sum(len(each) for _, each in selection) == 1 else None
        if row is None or row.plan.setup is None:
            return self.setup
        return replace(row.candidate.setup, n_ctx=self.setup.n_ctx)

    def listed(self) -> list[QuantRow]:
        """Return the quants to show, sorted and filtered."""
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
            return ""
        if entry.reason:
            return f"{FITS_NOT} {entry.title}: {entry.reason}"
        if not is_machine_known:
            return f"{entry.title} · planned once this machine's memory is known"
        reading = "reading headers…" if entry.needs_network and not self.rows else "planning…"
        parts = (
            shorten_middle(entry.title, _MOST_TITLE),
            reading if is_planning else counted(len(self.listed()), "quant") if self.rows else "",
            *self.hidden,
            f"{format_count(n_marked)} marked" if n_marked else "",
            describe_config(self.options),
        )
        return " · ".join(filter(None, parts))

    def reason(self) -> str:
        """Return the pick and its reason in a sentence; empty until it is made."""
        from ggbench.decisions.pick.sentences import headline, reason

        if self.pick is None:
            return ""
        if beyond := beyond_training(self.pick):
            return beyond
        first = next(iter(reason(self.pick)), "")
        if self.pick.recommended is None:
            return sanitize(f"{headline(self.pick)} {first}")
        return sanitize(f"{PICKED} {candidate_name(self.pick.recommended.candidate)}: {first[:1].lower()}{first[1:]}")

    def _matching(self) -> list[QuantRow]:
        """Return the quants matching the filter, with labels if several share a quant or a server has them."""
        times = Counter(row.plan.quant for row in self.rows.values())
        rows = []
        for row in self.rows.values():
            is_named = times[row.plan.quant] > 1 or row.plan.provenance == "endpoint"
            rows.append(replace(row, label=sanitize(row.name) if is_named else ""))
        return [row for row in rows if has_words(f"{row.title} {row.name}", self.words)]

    def row_of(self, candidate: Candidate, meets: bool | None = None) -> QuantRow:
        file, is_here = candidate.to_run, self._is_here(candidate)
        is_asked_for = self.entry is not None and self.entry.model.startswith("twin:")
        is_twin = not is_here and (is_asked_for or (file is not None and not file.repo))
        is_beyond = self._all_needs.exceeds(candidate.row.n_ctx_train)
        return QuantRow(candidate, is_here, is_twin, False if is_beyond else meets, is_beyond)

    def _is_here(self, candidate: Candidate) -> bool:
        name, file = candidate.quant, candidate.to_run
        is_listed = self.entry is not None and (self.entry.model, name) in self._on_disk
        is_served = self.entry is not None and self.entry.section is Section.SERVERS
        return is_served or is_listed or (file is not None and file.is_here)


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
