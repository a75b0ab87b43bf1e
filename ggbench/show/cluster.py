"""Several machines together as tables and JSON: their RPC servers, and the fastest split of a model over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ggbench.engines.llama.rpc_client import Link, Percentiles, RemoteDevice, ServerProbe
from ggbench.engines.llama.rpc_server import RpcServerReady
from ggbench.show import UNKNOWN
from ggbench.show.document import Document, field, of
from ggbench.show.tables import fitted_table, names, notes, right
from ggbench.sizing.cluster import ClusterPlan, ClusterSplit
from ggbench.text import sanitize
from ggbench.units import format_bandwidth, format_bytes, format_length, format_ms, format_number

_CAPTION = "each the median; p95 is what 95 % of the measurements are no worse than"


def probes_table(probes: Sequence[ServerProbe], *, width: int | None = None) -> Table:
    """Return a line for each device; a server's first line describes the server."""
    lines = [(probe, device, not index) for probe in probes for index, device in enumerate(probe.devices or (None,))]

    def texts(text: Callable[[ServerProbe], str]) -> list[str]:
        return [text(probe) if is_first else "" for probe, _, is_first in lines]

    def of_device(text: Callable[[RemoteDevice], str], unknown: str = UNKNOWN) -> list[str]:
        return [unknown if device is None else text(device) for _, device, _ in lines]

    def of_link(text: Callable[[Link], str]) -> list[str]:
        return texts(lambda probe: UNKNOWN if probe.link is None else text(probe.link))

    def rates(name: str, part: str) -> list[str]:
        def text(link: Link) -> str:
            rate: Percentiles | None = getattr(link, name)
            return UNKNOWN if rate is None else format_bandwidth(getattr(rate, part))

        return of_link(text)

    return fitted_table(
        [
            names("server", texts(lambda probe: probe.server)),
            right("protocol", texts(lambda probe: ".".join(map(str, probe.protocol or ())) or UNKNOWN), priority=1),
            right("device", of_device(lambda device: str(device.number), "")),
            right("free", of_device(lambda device: format_bytes(device.free_bytes))),
            right("total", of_device(lambda device: format_bytes(device.total_bytes)), priority=2),
            right("round trip", of_link(lambda link: format_ms(link.round_trip_ns.p50 / 1e6)), "ms"),
            right("p95", of_link(lambda link: format_ms(link.round_trip_ns.p95 / 1e6)), "ms", 3),
            right("up", rates("up_bytes_per_s", "p50")),
            right("up p95", rates("up_bytes_per_s", "p95"), priority=4),
            right("down", rates("down_bytes_per_s", "p50")),
            right("down p95", rates("down_bytes_per_s", "p95"), priority=4),
            notes(texts(lambda probe: probe.reason)),
        ],
        labels=[probe.server for probe, _, _ in lines],
        dim=[not probe.is_usable for probe, _, _ in lines],
        width=width,
        caption=_CAPTION if any(probe.link for probe in probes) else "",
    )


def cluster_report(plan: ClusterPlan, *, width: int | None = None) -> RenderableType:
    title = f"{sanitize(plan.model)} {sanitize(plan.quant)}: the fastest split at n_ctx {format_length(plan.n_ctx)}"
    if plan.best is None:
        return Text(f"{title}: none, it does not fit")
    counts, at_n_ctx = plan.best.n_layers, f"at {format_length(plan.n_ctx)}"
    kv = (format_ms(speed.kv_ms * plan.n_ctx) for speed in plan.speeds)
    by_device = fitted_table(
        [
            names("device", (speed.device for speed in plan.speeds)),
            right("layers", map(str, counts), stays=True),
            right("layer", (format_ms(speed.layer_ms) for speed in plan.speeds), "ms", stays=True),
            right("its KV", kv, f"ms {at_n_ctx}", 2, stays=True),
            right("output", (format_ms(speed.output_ms) for speed in plan.speeds), "ms, as last", 1, stays=True),
            right("link", (format_ms(speed.link_ms) for speed in plan.speeds), "ms, before", stays=True),
        ],
        dim=[not count for count in counts],
        title=title,
        width=width,
    )
    choices = {"all of use": plan.best} | {f"without {machine}": split for machine, split in plan.without}
    servers = {f"without {speed.server}" for speed in plan.speeds if speed.server}

    def advice(name: str, split: ClusterSplit | None) -> str:
        if split is None:
            return "does not fit"
        return "no loss: leave it out" if plan.best == split and name in servers else ""

    first = (format_number(1e3 / split.b_ms if split else None) for split in choices.values())
    later = (format_number(1e3 / split.at_n_ctx_ms if split else None) for split in choices.values())
    by_machine = fitted_table(
        [
            names("machines", choices),
            right("tok/s", first, "first", stays=True),
            right("tok/s", later, at_n_ctx, stays=True),
            notes(advice(name, split) for name, split in choices.items()),
        ],
        width=width,
    )
    lines = [
        Text(sanitize(line), no_wrap=True, overflow="ignore") for line in (plan.llama_server, plan.command) if line
    ]
    return Group(by_device, Padding(by_machine, (1, 0)), *lines)


CLUSTER_SERVE = Document(
    "cluster.serve",
    "cluster serve",
    "A running server; the command continues until stopped.",
    of(RpcServerReady),
    field("pid", int, "The serving process."),
)
"""Made from an `RpcServerReady`."""
CLUSTER_PROBE = Document(
    "cluster.probe", "cluster probe HOST:PORT...", "The probed RPC servers.", field("servers", list[ServerProbe])
)
CLUSTER_PLAN = Document(
    "cluster.plan",
    "cluster plan MODEL [QUANT...]",
    "The best split of each quant over the machines.",
    field("model", str),
    field("plans", list[ClusterPlan]),
)
