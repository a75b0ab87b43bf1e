"""Rounds of both sides, kept as JSON lines, and the table of their ratios."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ggbench.units import format_count, format_number

_COVERAGE = 0.95
HEADER = (
    "| | ratio | 95 % of it | ggbench | peer | unit | peer | rounds | date |\n"
    "|---|---:|---|---:|---:|---|---|---:|---|"
)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    what: str
    unit: str
    peer: str
    low: float | None = None
    """The least ratio that is aimed at; None where less is always better, or nothing is aimed at."""
    high: float | None = None
    """The largest."""


@dataclass(frozen=True, slots=True)
class Session:
    """What the rounds of one run of the script have in common."""

    at: str
    """When it began, in UTC."""
    machine: str
    file: str
    version: str
    """Of llama.cpp."""


@dataclass(frozen=True, slots=True)
class Round:
    """One row's values of one round."""

    row: Row
    session: Session
    ours: float
    theirs: float

    @property
    def ratio(self) -> float:
        """Ours over theirs; 1 where both are zero."""
        return 1.0 if self.ours == self.theirs else self.ours / self.theirs if self.theirs else math.inf


def append(path: Path, rounds: Iterable[Round]) -> None:
    """Add rounds to a file of results, which is made where it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(asdict(each))}\n" for each in rounds)


def read(path: Path) -> list[Round]:
    """Return all rounds of a file; none where there is no file."""
    if not path.exists():
        return []
    documents = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [Round(Row(**each.pop("row")), Session(**each.pop("session")), **each) for each in documents]


def last_sessions(rounds: Sequence[Round]) -> list[list[Round]]:
    """Return the rounds of each row's last session, in the order in which the rows came first."""
    latest: dict[tuple[str, ...], list[Round]] = {}
    for each in rounds:
        kept = latest.setdefault((each.session.file, each.row.what, each.row.unit, each.row.peer), [])
        if kept and kept[0].session.at < each.session.at:
            kept.clear()
        if not kept or kept[0].session.at == each.session.at:
            kept.append(each)
    return list(latest.values())


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the narrowest pair of order statistics that holds the median with 95 %, else the least and the largest.

    Of n values the median lies between the k-th least and the k-th largest with probability
    1 - 2 * sum(C(n, i) / 2^n for i < k), whatever their distribution; 95 % takes six values or more.
    """
    ordered, n = sorted(values), len(values)
    depth, outside = 0, 2 / 2**n
    while outside <= 1 - _COVERAGE:
        depth += 1
        outside += 2 * math.comb(n, depth) / 2**n
    at = max(0, depth - 1)
    return ordered[at], ordered[n - 1 - at]


def misses_aim(rounds: Sequence[Round]) -> bool:
    """Whether the interval of the ratio lies wholly outside what is aimed at."""
    least, largest = median_interval([each.ratio for each in rounds])
    low, high = rounds[0].row.low, rounds[0].row.high
    return (low is not None and largest < low) or (high is not None and least > high)


def table(rounds: Sequence[Round]) -> str:
    """Return the table of the last session of each row, as Markdown."""
    latest = last_sessions(rounds)
    has_several = len({kept[0].session.file for kept in latest}) > 1
    return "\n".join([HEADER, *(_line(kept, with_file=has_several) for kept in latest)])


def _value(value: float) -> str:
    """A count whole, a measurement with three digits."""
    return format_count(int(value)) if value == int(value) else format_number(value)


def _line(rounds: Sequence[Round], *, with_file: bool) -> str:
    row, ratios = rounds[0].row, [each.ratio for each in rounds]
    least, largest = (f"{end:.3f}" for end in median_interval(ratios))
    interval = least if least == largest else f"{least}–{largest}"
    ours, theirs = (
        _value(statistics.median(values))
        for values in ([each.ours for each in rounds], [each.theirs for each in rounds])
    )
    mark = " ✗" if misses_aim(rounds) else ""
    ratio = f"{statistics.median(ratios):.3f}{mark}"
    date = rounds[0].session.at[:10]
    what = f"{row.what}, {rounds[0].session.file}" if with_file else row.what
    cells = (what, ratio, interval, ours, theirs, row.unit, row.peer, str(len(rounds)), date)
    return f"| {' | '.join(cells)} |"
