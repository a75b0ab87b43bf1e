"""A quant in the tables of the Library and of the pick: its row and its columns.

A number that was measured here is bold, one that is estimated begins with ~, and a bound is dim and begins with ≤ or ≥.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import PurePath

import msgspec
from msgspec.structs import replace

from ggbench.decisions.pick.record import Candidate
from ggbench.engines.endings import Outcome
from ggbench.show import FITS, FITS_NOT, UNKNOWN
from ggbench.show.glossary import UNSTEADY
from ggbench.show.names import kv_name
from ggbench.show.plan import WHOLE_TRAINING
from ggbench.show.text import SPEED_FROM
from ggbench.sizing.plan_record import PlanRow
from ggbench.stats.speed_estimate import SpeedBasis
from ggbench.text import sanitize
from ggbench.units import format_bytes, format_count, format_fixed, format_number

_AT_MOST, _AT_LEAST, _ABOUT = "≤", "≥", "~"
_TO_DOWNLOAD = "↓"
_BOLD, _DIM = "bold", "dim"


def speed_from(basis: SpeedBasis, source: str) -> str:
    """Return what a speed is from: `run 12`, `other runs here`, `a forecast`. Printable."""
    return sanitize(source) if basis == "measured" else SPEED_FROM[basis]


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
    is_old: bool = False
    """Whether it is of former needs, until it is planned for those of now."""
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
    def notes(self) -> tuple[str, ...]:
        """What it takes of the main memory beside a GPU, and what its speed is from."""
        host_bytes = self.candidate.host_bytes
        host = "" if host_bytes is None else f"{format_bytes(host_bytes)} of main memory"
        return tuple(filter(None, (host, self._speed_note)))

    @property
    def _speed_note(self) -> str:
        """What the speed is from. Printable."""
        speed = self.candidate.speed
        if speed is None or self.plan.fits is False:
            return ""
        if speed.is_bound:
            return f"{_AT_MOST} tok/s is a limit, no speed"
        source = speed_from(speed.basis, speed.source)
        return f"tok/s measured by {source}" if speed.is_measured else f"{_ABOUT}tok/s from {source}"

    def is_called(self, name: str) -> bool:
        """Return whether the name, in any case, is its QUANT argument, its quant or its file's name."""
        return name.casefold() in (
            self.name.casefold(),
            self.plan.quant,
            PurePath(self.plan.file).name.casefold(),
        )


class QuantColumn(msgspec.Struct, frozen=True):
    key: str
    header: str
    text: Callable[[QuantRow], str]
    right_aligned: bool = True
    width: int = 8
    """The least, in characters."""
    style: Callable[[QuantRow], str] = lambda _row: ""


def _fits(row: QuantRow) -> str:
    """Return `✓`, with how it is run unless that is llama.cpp's default: `✓ KV q8_0`, `✓ ncmoe 24`."""
    if row.plan.outcome is not Outcome.COMPLETED:
        return f"{FITS_NOT} failed"
    mark = {None: "?", True: f"{FITS_NOT} ctx" if row.is_beyond else FITS, False: FITS_NOT}[row.plan.fits]
    how = kv_name("", *row.candidate.cache).strip(" ,")
    options = (option.removeprefix("-") for option in row.candidate.options)
    return " ".join(filter(None, (mark, how, *options)))


def _tok_s(row: QuantRow) -> str:
    speed, expected = row.candidate.speed, row.plan.expected
    if speed is None:
        return UNKNOWN
    sign = "" if speed.is_measured else _ABOUT
    if speed.is_bound:
        sign = _AT_MOST
    mark = UNSTEADY if expected is not None and not expected.is_steady else ""
    return f"{mark}{sign}{format_number(speed.tok_s.value)}"


def _speed_style(row: QuantRow) -> str:
    speed = row.candidate.speed
    if speed is not None and speed.is_bound:
        return _DIM
    return _BOLD if speed is not None and speed.is_measured else ""


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
    return f"{'' if speed.is_measured else _ABOUT}{format_number(speed.turn_s.value)}"


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
    sign = "" if _is_loss_measured(candidate) else _ABOUT
    if candidate.loss is None:
        sign = _AT_LEAST
    is_long = 0 < least.value < 1e-3
    return f"{sign}{format_fixed(least.value, 4) if is_long else format_number(least.value, 2)}"


def _is_loss_measured(candidate: Candidate) -> bool:
    parts = (candidate.weights_loss, candidate.cache_loss)
    return candidate.joint_loss is not None or all(each and each.basis != "published typical" for each in parts)


def _kld_style(row: QuantRow) -> str:
    if row.candidate.loss is None:
        return _DIM
    return _BOLD if _is_loss_measured(row.candidate) else ""


def _file(row: QuantRow) -> str:
    if row.is_here:
        return "here"
    return "twin" if row.is_twin else f"{_TO_DOWNLOAD}{format_bytes(row.plan.file_bytes)}"


def _basis(row: QuantRow) -> str:
    speed = row.candidate.speed
    return UNKNOWN if speed is None else speed_from(speed.basis, speed.source)


def _bytes(name: str, header: str, width: int = 9) -> QuantColumn:
    return QuantColumn(name, header, lambda row: format_bytes(getattr(row.plan, name)), width=width)


ESSENTIAL = (
    QuantColumn("quant", "quant", lambda row: row.title, right_aligned=False, width=10),
    QuantColumn("fits", "fits", _fits, right_aligned=False, width=9),
    QuantColumn("tok_s", "tok/s", _tok_s, width=6, style=_speed_style),
    QuantColumn(
        "n_ctx",
        "context",
        _context,
        width=7,
        style=lambda row: _BOLD if row.candidate.probed_by is not None else "",
    ),
    QuantColumn("kld", "KLD", _kld, width=7, style=_kld_style),
    QuantColumn("file", "file", _file, width=10),
)
_BY_WORTH = (
    _bytes("left_bytes", "left"),
    _bytes("needed_bytes", "memory"),
    _bytes("file_bytes", "size"),
    QuantColumn("turn", "turn s", _turn, width=6, style=_speed_style),
    QuantColumn("bpw", "BPW", lambda row: format_number(row.plan.bpw), width=5),
    QuantColumn("interval", "95 % tok/s", _speed_interval, width=11),
    QuantColumn("basis", "speed from", _basis, width=25),
    _bytes("device_weight_bytes", "weights"),
    _bytes("device_kv_bytes", "KV"),
    _bytes("compute_bytes", "compute"),
)
"""The columns that a wider table has too, the most important first."""
COLUMNS = {column.key: column for column in (*ESSENTIAL, *_BY_WORTH)}
_WIDEST = 24
"""Characters of a name or of how a quant is run; longer texts end with `…`."""


def quant_columns(rows: Sequence[QuantRow], width: int, gap: int) -> tuple[QuantColumn, ...]:
    """Return the columns of a table of this width with `gap` blanks between two: the essential ones, as wide as their
    texts, and others while there is room.
    """
    chosen = []
    for column in ESSENTIAL:
        needed = max((len(column.text(row)) for row in rows), default=0)
        chosen.append(replace(column, width=max(column.width, min(needed, _WIDEST))))
    room = width - sum(column.width + gap for column in chosen)
    for column in _BY_WORTH:
        room -= column.width + gap
        if room < 0:
            break
        chosen.append(column)
    return tuple(chosen)
