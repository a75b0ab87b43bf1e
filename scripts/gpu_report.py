"""A report of scripts/gpu_check as text: what its JSON says, with each figure in the unit that its name ends with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ggbench.text import sanitize
from ggbench.units import format_bandwidth, format_bytes, format_count, format_ms, format_number, format_percent

_UNITS: dict[str, Callable[[float], str]] = {
    "bytes_per_s": format_bandwidth,
    "bytes": format_bytes,
    "ratio": format_percent,
    "ms": lambda value: f"{format_ms(value)} ms",
    "mj": lambda value: f"{format_number(value / 1e3)} J",
    "tokens_per_ms": lambda value: f"{format_number(value)} tokens/ms",
    "tok_s": lambda value: f"{format_number(value)} tok/s",
    "mhz": lambda value: f"{format_number(value)} MHz",
    "seconds": lambda value: f"{format_number(value)} s",
    "c": lambda value: f"{format_number(value)} °C",
    "w": lambda value: f"{format_number(value)} W",
}
"""By the end of a figure's name, the longest first."""
_NAME_WIDTH = 24


def report_text(document: Mapping[str, Any]) -> str:
    """The whole report; `document` is what scripts/gpu_check writes as report.json. Unknown is left out."""
    parts = [f"ggbench on a GPU, {document['taken_at']}"]
    parts += [_section(name, document[name]) for name in ("device", "machine", "build")]
    parts += [_section(piece["title"], piece["facts"]) for piece in document["pieces"]]
    parts.append(_tests(document["tests"], document["pytest_status"]))
    return "\n\n".join(parts)


def _section(title: str, facts: Mapping[str, Any]) -> str:
    lines = [sanitize(title)]
    for name, value in facts.items():
        if value is None or value == [] or value == "":
            continue
        for each in value if isinstance(value, list) and isinstance(value[0], Mapping) else [value]:
            label, text = fact(name, each)
            lines.append(f"  {label:<{_NAME_WIDTH}}{text}")
    return "\n".join(lines)


def fact(name: str, value: object) -> tuple[str, str]:
    """A figure's label and text: `weight_bytes` and 2^30 are `weight` and `1.00 GiB`."""
    if isinstance(value, list | tuple):
        return fact(name, value[0])[0] if value else name, ", ".join(fact(name, each)[1] for each in value)
    if isinstance(value, Mapping):
        inner = (fact(key, each) for key, each in value.items() if each not in (None, 0, "", []))
        return name.replace("_", " "), "; ".join(f"{label} {text}" for label, text in inner)
    if isinstance(value, bool):
        return name.replace("_", " "), "yes" if value else "no"
    if isinstance(value, int | float):
        for unit, text in _UNITS.items():
            if name == unit or name.endswith(f"_{unit}"):
                return name.removesuffix(unit).strip("_").replace("_", " ") or unit, text(value)
        return name.replace("_", " "), format_count(value) if isinstance(value, int) else format_number(value)
    return name.replace("_", " "), sanitize(str(value))


def _tests(results: Sequence[Mapping[str, Any]], status: int) -> str:
    if not results:
        return f"tests: none ran (pytest ended with {status})"
    outcomes = [result["outcome"] for result in results]
    counts = ", ".join(
        f"{outcomes.count(outcome)} {outcome}"
        for outcome in ("passed", "failed", "error", "skipped")
        if outcome in outcomes
    )
    lines = [f"tests: {counts} (pytest ended with {status})"]
    for result in results:
        reason = sanitize(result["reason"])[:300]
        lines.append(
            f"  {result['outcome']:<8}{result['seconds']:8.1f} s  {sanitize(result['name'])}  {reason}".rstrip()
        )
    return "\n".join(lines)
