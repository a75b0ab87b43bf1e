"""RPC servers: what they expose, and how fast the links are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ggbench.engines.llama.rpc_client import Link, Percentiles, RemoteDevice, ServerProbe
from ggbench.show import ESSENTIAL, UNKNOWN
from ggbench.show.tables import fitted_table, names, notes, right
from ggbench.sizing.cluster import ClusterPlan, ClusterSplit
from ggbench.text import plain
from ggbench.units import format_bandwidth, format_bytes, format_length, format_ms, format_number

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


def cluster_report(plan: ClusterPlan, *, width: int | None = None) -> RenderableType:
    """The best split by device, what each machine is worth, and the lines that run it; `width` is the terminal's."""
    title = f"{plain(plan.model)} {plain(plan.quant)}: the fastest split at n_ctx {format_length(plan.n_ctx)}"
    if plan.best is None:
        return Text(f"{title}: none, it does not fit")
    counts = plan.best.n_layers
    by_device = fitted_table(
        [
            names("device", (speed.device for speed in plan.speeds)),
            right("layers", map(str, counts), stays=True),
            right("layer", (format_ms(speed.layer_ms) for speed in plan.speeds), "ms", stays=True),
            right(
                "its KV", (format_ms(speed.kv_ms * plan.n_ctx) for speed in plan.speeds),
                f"ms at {format_length(plan.n_ctx)}", 2, stays=True,
            ),
            right("output", (format_ms(speed.output_ms) for speed in plan.speeds), "ms, as last", 1, stays=True),
            right("link", (format_ms(speed.link_ms) for speed in plan.speeds), "ms, before", stays=True),
        ],
        dim=[not count for count in counts],
        title=title,
        width=width,
    )  # fmt: skip
    choices: list[tuple[str, ClusterSplit | None]] = [("all of use", plan.best)]
    choices += [(f"without {machine}", split) for machine, split in plan.without]
    by_machine = fitted_table(
        [
            names("machines", (name for name, _ in choices)),
            right("tok/s", (_tok_s(split, "b_ms") for _, split in choices), "first", stays=True),
            right(
                "tok/s", (_tok_s(split, "at_n_ctx_ms") for _, split in choices), f"at {format_length(plan.n_ctx)}",
                stays=True,
            ),
            notes(_advice(plan, name, split) for name, split in choices),
        ],
        width=width,
    )  # fmt: skip
    lines = [line for line in (plan.llama_server, plan.command) if line]
    return Group(
        by_device, Padding(by_machine, (1, 0)), *(Text(plain(line), no_wrap=True, overflow="ignore") for line in lines)
    )


def _tok_s(split: ClusterSplit | None, field: str) -> str:
    return UNKNOWN if split is None else format_number(1e3 / getattr(split, field))


def _advice(plan: ClusterPlan, name: str, split: ClusterSplit | None) -> str:
    if split is None:
        return "does not fit"
    servers = {f"without {speed.server}" for speed in plan.speeds if speed.server}
    return "no loss: leave it out" if plan.best == split and name in servers else ""


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
