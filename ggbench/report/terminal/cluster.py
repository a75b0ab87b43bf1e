"""RPC servers: what they lend, and what the way to them takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from rich.table import Table

from ggbench.records.cluster import Link, Percentiles, RemoteDevice, ServerProbe
from ggbench.report import ESSENTIAL, UNKNOWN
from ggbench.report.terminal.tables import fitted_table, names, notes, right
from ggbench.units import format_bandwidth, format_bytes, format_ms

_CAPTION = "each the median; p95 is what 95 % of the measurements are no worse than"


def probes_table(probes: Sequence[ServerProbe], *, width: int | None = None) -> Table:
    """One line for each device; what concerns its server is on the first. `width` is the terminal's."""
    lines = [line for probe in probes for line in _lines(probe)]

    def texts(text: Callable[[ServerProbe], str]) -> list[str]:
        return [text(probe) if is_first else "" for probe, _, is_first in lines]

    has_links = any(probe.link for probe in probes)
    return fitted_table(
        [
            names("server", texts(lambda probe: probe.server)),
            right("protocol", texts(lambda probe: ".".join(map(str, probe.protocol or ())) or UNKNOWN), priority=1),
            right("device", ["" if device is None else str(device.number) for _, device, _ in lines]),
            right("free", [UNKNOWN if device is None else format_bytes(device.free_bytes) for _, device, _ in lines]),
            right(
                "total",
                [UNKNOWN if device is None else format_bytes(device.total_bytes) for _, device, _ in lines],
                priority=2,
            ),
            *(
                right(header, texts(partial(_link_text, text)), unit, priority)
                for header, unit, priority, text in _LINK
            ),
            notes(texts(lambda probe: probe.reason)),
        ],
        labels=[probe.server for probe, _, _ in lines],
        dim=[not probe.is_usable for probe, _, _ in lines],
        width=width,
        caption=_CAPTION if has_links else "",
    )


def _lines(probe: ServerProbe) -> Iterator[tuple[ServerProbe, RemoteDevice | None, bool]]:
    devices: Sequence[RemoteDevice | None] = probe.devices or (None,)
    for index, device in enumerate(devices):
        yield probe, device, not index


def _link_text(text: Callable[[Link], str], probe: ServerProbe) -> str:
    return UNKNOWN if probe.link is None else text(probe.link)


def _rate(rate: Percentiles | None, part: str) -> str:
    return UNKNOWN if rate is None else format_bandwidth(getattr(rate, part))


_LINK: tuple[tuple[str, str, int, Callable[[Link], str]], ...] = (
    ("round trip", "ms", ESSENTIAL, lambda link: format_ms(link.round_trip_ns.p50 / 1e6)),
    ("p95", "ms", 3, lambda link: format_ms(link.round_trip_ns.p95 / 1e6)),
    ("up", "", ESSENTIAL, lambda link: _rate(link.up_bytes_per_s, "p50")),
    ("up p95", "", 4, lambda link: _rate(link.up_bytes_per_s, "p95")),
    ("down", "", ESSENTIAL, lambda link: _rate(link.down_bytes_per_s, "p50")),
    ("down p95", "", 4, lambda link: _rate(link.down_bytes_per_s, "p95")),
)
"""Header, unit, priority and text of each figure."""
