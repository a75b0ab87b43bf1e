"""Numbers to text and back; the only place that formats one. GiB is 2^30, GB is 10^9."""

from __future__ import annotations

import math
import re

from ggbench.errors import UsageError

GIB = 1 << 30
MIB = 1 << 20

_SIZE_UNITS = {
    "": 1, "b": 1,
    "k": 1 << 10, "kib": 1 << 10, "kb": 10**3,
    "m": MIB, "mib": MIB, "mb": 10**6,
    "g": GIB, "gib": GIB, "gb": 10**9,
    "t": 1 << 40, "tib": 1 << 40, "tb": 10**12,
}  # fmt: skip
_DECIMAL = {"kb": 1, "mb": 2, "gb": 3, "tb": 4}
"""Units of powers of ten, with how many thousands they are."""
_FLOPS = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([gtp])flops?(?:/s)?\s*", re.IGNORECASE)
_THOUSANDS = {"g": 3, "t": 4, "p": 5}
_QUANTITY = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([a-zA-Z]*?)(/s|ps)?\s*")
_LARGEST = 1 << 60


def parse_size(text: str) -> int:
    """Bytes of `24GiB`, `24G` (both 2^30), `24GB` (10^9), or a bare number of a MiB and more. Raises UsageError.

    In small letters throughout, `24gb` is `24GB`; `24Gb` says bits, and is refused.
    """
    accepted = "a size such as 24GiB, 512MiB or 8GB"
    n_bytes = round(_parse(text, per_second=False, accepted=accepted))
    if not n_bytes:
        raise UsageError(f"{text!r} is out of range for {accepted}", "it has to be at least one byte")
    if n_bytes < MIB and text.strip().isdigit():
        raise UsageError(f"{text} would be that many bytes, not {accepted}", f"did you mean {text.strip()}GiB?")
    return n_bytes


def parse_bandwidth(text: str, *, binary: bool = False) -> float:
    """Bytes per second of `1008GB/s` or `80GiB/s`; `binary` takes GB for 2^30 as well. Raises UsageError.

    Bits are refused as `parse_size` does, `100gbps` among them.
    """
    return _parse(text, per_second=True, accepted="a bandwidth such as 1008GB/s or 80GiB/s", binary=binary)


def parse_compute(text: str, *, binary: bool = False) -> float:
    """Floating-point operations per second of `82.58TFLOPS`; `binary` takes T for 2^40. Raises UsageError."""
    accepted = "a compute rate such as 82.58TFLOPS or 900GFLOPS"
    match = _FLOPS.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not {accepted}", "write GFLOPS, TFLOPS or PFLOPS after the number")
    value = float(match[1]) * float(1024 if binary else 1000) ** _THOUSANDS[match[2].lower()]
    if not 0 < value <= _LARGEST:
        raise UsageError(f"{text!r} is out of range for {accepted}", "it has to be above zero and below 1152 PFLOPS")
    return value


def _parse(text: str, *, per_second: bool, accepted: str, binary: bool = False) -> float:
    match = _QUANTITY.fullmatch(text)
    unit = match[2].lower() if match else None
    if match is None or unit not in _SIZE_UNITS or bool(match[3]) != per_second:
        raise UsageError(f"{text!r} is not {accepted}", "GiB is 2^30 bytes, GB is 10^9")
    if _says_bits(match[2], match[3]):
        prefix = match[2][:-1]
        in_bytes = f"{match[1]}{prefix[:1].upper()}{prefix[1:]}B{'/s' if per_second else ''}"
        raise UsageError(f"{text!r} counts bits, for its b is small", f"for bytes write {in_bytes}, with a capital B")
    value = float(match[1]) * (1024 ** _DECIMAL[unit] if binary and unit in _DECIMAL else _SIZE_UNITS[unit])
    if not 0 < value <= _LARGEST:
        raise UsageError(f"{text!r} is out of range for {accepted}", "it has to be above zero and below 2^60 bytes")
    return value


def _says_bits(unit: str, per_second: str | None) -> bool:
    """Whether a unit's b is a bit: after a capital, as in `Gb`, and in the networks' `gbps`.

    People who write `24gb` shift no key at all, and mean bytes.
    """
    return unit.endswith("b") and (unit != unit.lower() or per_second == "ps")


def exact_size(n_bytes: int) -> str:
    """`1GiB`, `1200MiB`, `1000000B`: what `parse_size` reads as exactly these bytes, in the largest whole unit."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB")):
        if n_bytes and n_bytes % unit == 0:
            return f"{n_bytes // unit}{name}"
    return f"{n_bytes}B" if n_bytes else "0"


def format_bytes(n_bytes: float | None) -> str:
    """`382.6 MiB`, `4.43 GiB`; an em dash when unknown."""
    if n_bytes is None:
        return "—"
    size, unit = float(n_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1023.95:
            break
        size, unit = size / 1024, larger
    return f"{n_bytes:.0f} B" if unit == "B" else f"{format_number(size, 3 if abs(size) < 100 else 4)} {unit}"


def format_number(value: float | None, digits: int = 3) -> str:
    """At least `digits` significant digits, no exponent, all digits before the point; an em dash when unknown."""
    if value is None:
        return "—"
    if value == 0 or not math.isfinite(value):
        return f"{value:.0f}"
    rounded = float(f"{value:.{digits - 1}e}")
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{value:.{decimals}f}"


def format_fixed(value: float, decimals: int) -> str:
    """`1,250.0`: that many decimals, for numbers that stand under each other."""
    return f"{value:,.{decimals}f}"


def format_interval(value: float, low: float, high: float, digits: int = 3) -> str:
    """`205 ±4`: a value with its interval, to the digits that the interval leaves; `205 (180–310)` for a lopsided one.

    After ± stands the longer side. An interval without length leaves the value alone, to `digits`.
    """
    shorter, longer = sorted((value - low, high - value))
    if not math.isfinite(longer) or longer <= 0:
        return format_number(value, digits)
    if longer <= 1.5 * shorter:
        decimals = _decimals_of_error(longer)
        return f"{value:.{decimals}f} ±{longer:.{decimals}f}"
    decimals = _decimals_of_error(shorter if shorter > 0 else longer)
    return f"{value:.{decimals}f} ({low:.{decimals}f}–{high:.{decimals}f})"


def _decimals_of_error(error: float) -> int:
    """Decimals that leave an error one significant digit, or two where the first is a 1 or a 2."""
    exponent = math.floor(math.log10(error))
    return max(0, -exponent + (error < 3 * 10.0**exponent))


def format_ms(value: float | None) -> str:
    """Milliseconds without the unit, which the header carries; two decimals, or two digits below 0.1 ms."""
    if value is None:
        return "—"
    return f"{value:.2f}" if abs(value) >= 0.1 or value == 0 else format_number(value, 2)


def format_percent(ratio: float | None) -> str:
    """`78 %` of a ratio; an em dash when unknown."""
    return "—" if ratio is None else f"{ratio * 100:.0f} %" if ratio >= 0.1 else f"{ratio * 100:.1f} %"


def format_count(value: int | None) -> str:
    """`10,000`; an em dash when unknown."""
    return "—" if value is None else f"{value:,}"


def format_params(value: int | None, *, binary: bool = False) -> str:
    """Parameters as people say them: `7.72 B`, `464 M`, `1.6 M`, in powers of ten; below a million in full.

    `binary` counts in powers of two, as the article does: B is 2^30 and M 2^20.
    """
    if binary and value is not None:
        return f"{value / GIB:.2f} B" if value >= GIB // 10 else f"{format_number(value / MIB)} M"
    if value is None or value < 1e6:
        return format_count(value)
    return f"{value / 1e9:.2f} B" if value >= 5e8 else f"{value / 1e6:.{0 if value >= 1e7 else 1}f} M"


def format_bandwidth(bytes_per_s: float | None, *, binary: bool = False) -> str:
    """`24.7 GB/s`, in powers of ten as datasheets have it; `binary` takes GB for 2^30."""
    return "—" if bytes_per_s is None else f"{format_number(bytes_per_s / (GIB if binary else 1e9))} GB/s"


def format_compute(flop_per_s: float | None, *, binary: bool = False) -> str:
    """`82.58 TFLOPS`, in powers of ten as datasheets have it; `binary` takes T for 2^40."""
    return "—" if flop_per_s is None else f"{format_number(flop_per_s / (1 << 40 if binary else 1e12), 4)} TFLOPS"


def format_duration(seconds: float | None) -> str:
    """`0:42`, `12:05`, `1:02:30`."""
    if seconds is None or not math.isfinite(seconds):
        return "—"
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
