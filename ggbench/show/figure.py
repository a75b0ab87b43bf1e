"""A figure: what tables, Markdown, CSV, JSON, comparisons and the TUI show of a row, defined once.

Every output is a list of figures over rows. A row is any record: a plan's quant, a run, a model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, TypeAlias, TypedDict, TypeVar, Unpack

import msgspec

from ggbench.record import Record
from ggbench.show import ESSENTIAL, UNKNOWN
from ggbench.show.text import csv_text, without_formula
from ggbench.stats.intervals import Estimate
from ggbench.text import sanitize
from ggbench.units import format_count, format_interval, format_number

Row = TypeVar("Row")
Value: TypeAlias = "str | int | float | bool | Estimate | None"
Json: TypeAlias = "str | float | bool | None"
_OF_NUMBERS = ("_bytes", "_ms", "n_ctx", "n_layer", "n_params", "n_gen", "n_prompt", "bpw")
"""Ends of keys."""
_Ends: TypeAlias = "tuple[float | None, float | None] | None"
"""An end of null is unbounded."""


def value_text(value: Value) -> str:
    """Return a value as a table shows it: `yes`, `8,192`, `4.28`, `4.28 ±0.27`; an em dash for None."""
    match value:
        case None:
            return UNKNOWN
        case bool():
            return "yes" if value else "no"
        case str():
            return sanitize(value)
        case int():
            return format_count(value)
        case Estimate():
            return interval_text(value)
    return format_number(value)


def interval_text(estimate: Estimate, digits: int = 3) -> str:
    """Return `4.28 ±0.27`, both ends if they are asymmetric, or `> 126` and `< 7.92` without one of them."""
    if not math.isfinite(estimate.high):
        return f"> {format_number(estimate.low)}"
    if math.isnan(estimate.value):
        return f"< {format_number(estimate.high)}"
    return format_interval(estimate.value, estimate.low, estimate.high, digits=digits)


_MOST_SPREAD = 10
"""The ratio of upper end to value above which an interval is shown as a lower bound."""


def bounded_text(value: Value, digits: int = 3) -> str:
    """Return as `value_text`; an interval of many times the value is a lower bound: `> 126`."""
    if not isinstance(value, Estimate):
        return value_text(value)
    if is_bound(value):
        is_above = value.low > 0 and not math.isnan(value.value)
        value = Estimate(value.value if is_above else math.nan, value.low, math.inf if is_above else value.high)
    return interval_text(value, digits)


def is_bound(estimate: Estimate) -> bool:
    """Return whether an estimate is shown as a bound, which is no value to compute a ratio from."""
    return math.isnan(estimate.value) or estimate.low < 0 or estimate.high > _MOST_SPREAD * estimate.value


class Figure(Record, Generic[Row]):
    key: str
    """The name in JSON and CSV."""
    header: str
    get: Callable[[Row], Value]
    form: Callable[[Any], str] = value_text
    """Formats a value other than None."""
    unit: str = ""
    """Empty if each text has its own unit, as `1.2 GiB`."""
    meaning: str = ""
    better: Literal["more", "less", ""] = ""
    """Which values are better; empty if none is."""
    priority: int = ESSENTIAL
    """A table that is too wide leaves out the highest first; `ESSENTIAL` stays."""
    mark: Callable[[Row], str] = lambda row: ""
    """`~` estimated, `!` disturbed, `*` with a footnote, or empty."""
    is_estimate: bool = False
    """Whether values have intervals, which CSV and JSON show beside them."""

    @property
    def is_number(self) -> bool:
        """Return whether values are numbers, as a unit or the key tells."""
        return bool(self.unit or self.better or self.is_estimate or self.key.endswith(_OF_NUMBERS))

    @property
    def title(self) -> str:
        """Return the header with its unit: `W tokens/ms`."""
        return f"{self.header} {self.unit}".strip()

    def text(self, row: Row) -> str:
        """Return the value as shown, after its mark: `~24`, `! 71 ±13`; an em dash if unknown. Printable."""
        value = self.get(row)
        if value is None:
            return UNKNOWN
        mark = self.mark(row)
        return sanitize(f"{mark}{' ' if mark == '!' else ''}{self.form(value)}")


class Further(TypedDict, total=False):
    """What a figure may have besides its value."""

    unit: str
    meaning: str
    better: Literal["more", "less", ""]
    priority: int
    mark: Callable[[Any], str]
    is_estimate: bool


def member(
    key: str, header: str, form: Callable[[Any], str] = value_text, path: str = "", **further: Unpack[Further]
) -> Figure[Any]:
    """Return the figure of a row's member; `path` is its name if not the key, `a.b` within another that may be None."""
    return Figure(key, header, reader(path or key), form, **further)


def reader(path: str, of: Callable[[Row], object] = lambda row: row) -> Callable[[Row], Any]:
    """Return a function that reads a path of members such as `decode.n_gen`: None if any of them is None."""
    names = path.split(".")

    def read(row: Row) -> Any:  # noqa: ANN401 - what a record has
        found = of(row)
        for name in names:
            found = None if found is None else getattr(found, name)
        return found

    return read


def facts_of(figures: Iterable[Figure[Row]], row: Row) -> list[tuple[str, str]]:
    """Return the figures that a row has, neither 0 nor empty, as names with texts; one without a header is the source
    of that before it: `12.0 GiB (given)`.
    """
    found: list[tuple[str, str]] = []
    for figure in figures:
        value, text = figure.get(row), f"{figure.text(row)} {figure.unit}".rstrip()
        if value or value is False:
            name = figure.header
            if not name:
                name, said = found.pop()
                text = f"{said} ({text})"
            found.append((name, text))
    return found


def figure_values(figures: Iterable[Figure[Row]], row: Row) -> dict[str, object]:
    """Return a row for JSON, by key; an estimate is its value, and its interval under `interval_key`."""
    found: dict[str, object] = {}
    for figure in figures:
        value = figure.get(row)
        if isinstance(value, Estimate):
            found |= {figure.key: value.value, interval_key(figure.key): (value.low, value.high)}
            continue
        found[figure.key] = value
        if figure.is_estimate:
            found[interval_key(figure.key)] = None
    return found


def figures_csv(figures: Iterable[Figure[Row]], rows: Iterable[Row]) -> str:
    """Return rows as CSV: values are not rounded, unknown ones empty; an interval is in two columns after its value."""
    shown = list(figures)
    header: list[str] = []
    for figure in shown:
        header.append(figure.key)
        if figure.is_estimate:
            header += [f"{interval_key(figure.key)}_low", f"{interval_key(figure.key)}_high"]
    return csv_text(header, ([cell for figure in shown for cell in _cells(figure, row)] for row in rows))


def _cells(figure: Figure[Row], row: Row) -> tuple[object, ...]:
    value = figure.get(row)
    if isinstance(value, Estimate):
        return tuple(each if math.isfinite(each) else None for each in (value.value, value.low, value.high))
    cell = without_formula(value) if isinstance(value, str) else value
    return (cell, None, None) if figure.is_estimate else (cell,)


def interval_key(key: str) -> str:
    """Return the name of a figure's interval, without its unit: `tok_s_ci95`, `w_ci95` of `w_tokens_per_ms`."""
    return f"{key.removesuffix('_tokens_per_ms').removesuffix('_ms')}_ci95"


def figures_type(
    name: str,
    figures: Sequence[Figure[Any]],
    about: str = "",
    records: Mapping[str, object] | None = None,
    base: type[msgspec.Struct] | None = None,
) -> type[msgspec.Struct]:
    """Return the type of `figure_values`, with further members by name and those of a record, for a schema."""
    types = {} if base is None else {each.name: each.type for each in msgspec.structs.fields(base)}
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = [
        (
            each.key,
            Annotated[
                types.get(each.key, float | None if each.is_number else Json),
                msgspec.Meta(description=described(each)),
            ],
        )
        for each in figures
    ]
    fields += [
        (interval_key(each.key), Annotated[_Ends, msgspec.Meta(description="95 % interval.")])
        for each in figures
        if each.is_estimate
    ]
    fields += [(key, kind, None) for key, kind in (records or {}).items()]
    bases = None if base is None else (base,)
    return msgspec.defstruct(name, fields, bases=bases, kw_only=True, namespace={"__doc__": about})


def described(figure: Figure[Any]) -> str:
    """Return the meaning with its unit: `Median latency of a token [ms].`; the header if it says all."""
    if not figure.meaning:
        return figure.title
    return f"{figure.meaning.rstrip('.')} [{figure.unit}]." if figure.unit else figure.meaning
