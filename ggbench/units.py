"""Parse and format quantities; no other module formats numbers. GiB is 2^30, GB is 10^9."""

from __future__ import annotations

import math
import re

from ggbench.errors import UsageError

GIB = 1 << 30
MIB = 1 << 20
KV_CELLS = 256
"""llama.cpp pads a context to this many cells and reads the KV cache in steps of it."""

_SIZE_UNITS = {
    "": 1, "b": 1,
    "k": 1 << 10, "kib": 1 << 10, "kb": 10**3,
    "m": MIB, "mib": MIB, "mb": 10**6,
    "g": GIB, "gib": GIB, "gb": 10**9,
    "t": 1 << 40, "tib": 1 << 40, "tb": 10**12,
}  # fmt: skip
_FLOPS = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([gtp])flops?(?:/s)?\s*", re.IGNORECASE)
_THOUSANDS = {"g": 3, "t": 4, "p": 5}
_QUANTITY = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([kmgt]?(?:i?b)?|[kmgtKMGT]?(?:i?B)?)(/s|(?<=B)ps)?\s*")
"""A small b after a capital is a bit, but lower-case `24gb` is common for bytes."""
_LARGEST = 1 << 60
_DURATION = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([smh]?)\s*", re.IGNORECASE)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}
_LARGEST_BATCH = 65_536
_TOKENS = re.compile(r"(?P<number>[0-9]+(?:[,_][0-9]{3})*|[0-9]*\.[0-9]+)(?P<unit>[km]?)", re.IGNORECASE)
_TOKEN_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20}
MOST_TOKENS = (1 << 31) - 1
"""Largest value of llama.cpp's 32-bit counts."""


def parse_batch_sizes(text: str) -> tuple[int, ...]:
    """Parse numbers of sequences separated by commas, without duplicates. Raises UsageError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 0 < int(part) <= _LARGEST_BATCH for part in parts):
        raise UsageError(
            f"{text!r} is not a list of batch sizes", f"write whole numbers from 1 to {_LARGEST_BATCH}: 1,8,32"
        )
    return tuple(dict.fromkeys(map(int, parts)))


def parse_tokens(text: str, *, least: int = 1) -> int:
    """Parse a number of tokens: `16384`, `16,384`, `16_384` or `16k`, where k is 1024 and m is 1024 k.

    Raises UsageError for anything else, and outside `least` to `MOST_TOKENS`.
    """
    match = _TOKENS.fullmatch(text.strip())
    value = math.nan
    if match is not None:
        value = float(re.sub("[,_]", "", match["number"])) * _TOKEN_UNITS[match["unit"].lower()]
    if not value.is_integer():
        raise UsageError(f"{text!r} is not a number of tokens", "write 16384, 16,384 or 16k, where k is 1024")
    if not least <= value <= MOST_TOKENS:
        raise UsageError(f"{text!r} is out of range", f"write {least:,} to {MOST_TOKENS:,} tokens")
    return int(value)


def parse_size(text: str) -> int:
    """Parse a size: `24GiB`, `24G` (both 2^30), `24GB` (10^9), or a plain number. Raises UsageError.

    In lower case `24gb` is `24GB`; `24Gb` are bits. From 1,024 on a plain number is in MiB, as in nvidia-smi and
    llama.cpp's options, and from 1 MiB on in bytes.
    """
    accepted = "a size such as 24GiB, 512MiB or 8GB"
    n_bytes = round(_parse(text, per_second=False, accepted=accepted))
    if not n_bytes:
        raise UsageError(f"{text!r} is out of range for {accepted}", "it must be at least one byte")
    if n_bytes >= MIB or not text.strip().isdigit():
        return n_bytes
    if n_bytes < 1024:
        raise UsageError(f"{text} has no unit; expected {accepted}", f"did you mean {text.strip()}GiB?")
    return n_bytes * MIB


def parse_bandwidth(text: str) -> float:
    """Parse a bandwidth in bytes per second, `1008GB/s` or `80GiB/s`. Raises UsageError."""
    return _parse(text, per_second=True, accepted="a bandwidth such as 1008GB/s or 80GiB/s")


def parse_compute(text: str) -> float:
    """Parse floating-point operations per second, `82.58TFLOPS`; T is 2^40, as in the article. Raises UsageError."""
    accepted = "a compute rate such as 82.58TFLOPS or 900GFLOPS"
    match = _FLOPS.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not {accepted}", "write GFLOPS, TFLOPS or PFLOPS after the number")
    return _in_range(text, float(match[1]) * 1024.0 ** _THOUSANDS[match[2].lower()], accepted)


def _parse(text: str, *, per_second: bool, accepted: str) -> float:
    match = _QUANTITY.fullmatch(text)
    if match is None or bool(match[3]) != per_second:
        raise UsageError(f"{text!r} is not {accepted}", "GiB is 2^30 bytes, GB is 10^9; Gb and gbps are bits")
    return _in_range(text, float(match[1]) * _SIZE_UNITS[match[2].lower()], accepted)


def _in_range(text: str, value: float, accepted: str) -> float:
    if not 0 < value <= _LARGEST:
        raise UsageError(f"{text!r} is out of range for {accepted}", "it must be above zero and below 2^60")
    return value


def parse_duration(text: str) -> float:
    """Parse a time in seconds: `90s`, `10m`, `1.5h`, or a plain number of seconds. Raises UsageError."""
    match = _DURATION.fullmatch(text)
    seconds = float(match[1]) * _SECONDS[match[2].lower()] if match else 0
    if not 0 < seconds < _LARGEST:
        raise UsageError(
            f"{text!r} is not a time such as 90s, 10m or 1h", "s, m and h are seconds, minutes and hours"
        )
    return seconds


def exact_size(n_bytes: int) -> str:
    """Return `1GiB`, `1200MiB`, `32GB`, `512000B`: text that `parse_size` parses to exactly these bytes."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (10**9, "GB"), (10**6, "MB")):
        if n_bytes and n_bytes % unit == 0:
            return f"{n_bytes // unit}{name}"
    return f"{n_bytes}B" if n_bytes else "0"


def format_bytes(n_bytes: float | None) -> str:
    """Return `382.6 MiB`, `4.43 GiB`; an em dash if unknown."""
    if n_bytes is None:
        return "—"
    size, unit = float(n_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1023.95:
            break
        size, unit = size / 1024, larger
    if unit == "B":
        return f"{n_bytes:.0f} B"
    return f"{format_number(size, 3 if abs(size) < 100 else 4)} {unit}"


def format_number(value: float | None, digits: int = 3) -> str:
    """Return at least `digits` significant digits, and all digits before the point; an em dash if unknown."""
    if value is None:
        return "—"
    if value == 0 or not math.isfinite(value):
        return f"{value:.0f}"
    rounded = float(f"{value:.{digits - 1}e}")
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{value:.{decimals}f}"


def with_unit(text: str, unit: str) -> str:
    """Append the unit to a formatted quantity, but not to an em dash."""
    return text if text == "—" else f"{text} {unit}"


def format_fixed(value: float, decimals: int) -> str:
    """Return a number with thousands separators and fixed decimals, `1,250.0`, for aligned columns."""
    return f"{value:,.{decimals}f}"


def format_interval(value: float, low: float, high: float, digits: int = 3) -> str:
    """Return a value with its interval, rounded to the interval's precision.

    `205 ±4`, with the longer side; `205 (180–310)` if it is asymmetric, or longer than half of the value. An
    interval below 1/100,000 of the value is omitted, and the value has `digits` digits.
    """
    shorter, longer = sorted((value - low, high - value))
    if not math.isfinite(longer) or longer <= abs(value) * 1e-5:
        return format_number(value, digits)
    if longer <= 1.5 * shorter and longer <= abs(value) / 2:
        decimals = _decimals_of_error(longer)
        return f"{value:.{decimals}f} ±{longer:.{decimals}f}"
    decimals = _decimals_of_error(shorter if shorter > 0 else longer)
    return f"{value:.{decimals}f} ({low:.{decimals}f}{' to ' if low < 0 else '–'}{high:.{decimals}f})"


def format_ratio(ratio: float, low: float, high: float, unit: str = "") -> str:
    """Return a ratio with its interval, `1.32 (1.28–1.36)` or with a unit `1.32 times (1.28–1.36)`; `> 3.20` without an
    upper end, and no interval without a width. Each number has at least two significant digits.

    More decimals are shown if the interval excludes 1 and the rounded one would include it.
    """
    if not math.isfinite(high):
        return f"> {format_number(low)}{unit}"
    decimals = max(0, 2 - math.ceil(math.log10(max(1.0, high - low))))
    if low < high and not low <= 1 <= high:
        decimals = max(decimals, -math.floor(math.log10(min(abs(low - 1), abs(high - 1)))))
    shown, *ends = (
        f"{each:.{max(decimals, 1 - math.floor(math.log10(max(each, _LEAST_RATIO))))}f}"
        for each in (ratio, low, high)
    )
    return f"{shown}{unit} ({'–'.join(ends)})" if low < high else f"{shown}{unit}"


_LEAST_RATIO = 0.01
"""Two decimals show smaller ones as far as it matters."""


def _decimals_of_error(error: float) -> int:
    """Return the number of decimals that gives an error one significant digit, or two if the first is 1 or 2."""
    exponent = math.floor(math.log10(error))
    return max(0, -exponent + (error < 3 * 10.0**exponent))


def format_ms(value: float | None) -> str:
    """Return milliseconds without the unit; two decimals, or two digits below 0.1 ms."""
    if value is None:
        return "—"
    return f"{value:.2f}" if abs(value) >= 0.1 or value == 0 else format_number(value, 2)


def format_percent(ratio: float | None) -> str:
    """Return a ratio as `78 %`; an em dash if unknown."""
    if ratio is None:
        return "—"
    return f"{ratio * 100:.1f} %" if ratio < 0.1 else f"{ratio * 100:.0f} %"


def format_count(value: int | None) -> str:
    """Return `10,000`; an em dash if unknown."""
    return "—" if value is None else f"{value:,}"


def counted(count: int, noun: str) -> str:
    """Return `1 run`, `2,000 runs`."""
    return f"{format_count(count)} {noun}{'' if count == 1 else 's'}"


def format_length(n_tokens: int | None) -> str:
    """Return `16k` for 16,384 tokens and `10,000` for 10,000; an em dash if unknown."""
    return f"{n_tokens // 1024}k" if n_tokens and n_tokens % 1024 == 0 else format_count(n_tokens)


def format_params(value: int | None) -> str:
    """Return `7.72 B`, `464 M` or `1.6 M`, powers of ten."""
    if value is None or value < 1e6:
        return format_count(value)
    if value >= 5e8:
        return f"{value / 1e9:.2f} B"
    return f"{value / 1e6:.1f} M" if value < 1e7 else f"{value / 1e6:.0f} M"


def format_bandwidth(bytes_per_s: float | None, *, binary: bool = False) -> str:
    """Return `24.7 GB/s`, in powers of ten as in datasheets; `binary` reads GB as 2^30."""
    unit_bytes = GIB if binary else 1e9
    return "—" if bytes_per_s is None else f"{format_number(bytes_per_s / unit_bytes)} GB/s"


def format_compute(flop_per_s: float | None) -> str:
    """Return `82.58 TFLOPS`; T is 2^40, as in the article."""
    return "—" if flop_per_s is None else f"{format_number(flop_per_s / (1 << 40), 4)} TFLOPS"


def format_span(seconds: float | None) -> str:
    """Return `0.4 s`, `45 s`, `11 min`, `2.4 h`; an em dash if unknown."""
    if seconds is None or not math.isfinite(seconds):
        return "—"
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 1.65 * size:
            return f"{format_number(seconds / size, 2)} {unit}"
    return f"{format_number(seconds, 2)} s"


def format_duration(seconds: float | None) -> str:
    """Return `0:42`, `12:05`, `1:02:30`, `<0:01`; an em dash if unknown."""
    if seconds is None or not math.isfinite(seconds):
        return "—"
    if 0 < seconds < 0.5:
        return "<0:01"
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
