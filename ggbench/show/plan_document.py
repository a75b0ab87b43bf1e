"""JSON of plans: what each quant needs of one machine or of several together, and what would help."""

from __future__ import annotations

from ggbench.engines.llama.rpc_client import ServerProbe
from ggbench.engines.llama.rpc_server import RpcServerReady
from ggbench.hub.repo_records import RepoListing
from ggbench.show.against import PublishedSize
from ggbench.show.document import Document, Shape, field, many, of, sometimes, within
from ggbench.show.plan import COSTS, change_options
from ggbench.show.published_document import ROW as PUBLISHED_ROW
from ggbench.sizing.cluster import ClusterPlan
from ggbench.sizing.plan_record import Budget, Change, PlanRow
from ggbench.stats.decode_timing import Bandwidth

_DEVICE = "device on_gpu memory_bytes memory_source reserve_bytes reserve_source"
_BANDWIDTH = of(
    Bandwidth, "bandwidth_bytes_per_s=bytes_per_s bandwidth_source=source", lambda budget: budget.bandwidth, maybe=True
)
MEMORY = Shape("Machine", "The memory to keep within.", of(Budget, f"{_DEVICE} budget_bytes=usable_bytes"), _BANDWIDTH)
"""Of a `Budget`."""
CHANGE = Shape(
    "Change",
    "What would help where it does not fit.",
    of(Change, "change=kind"),
    field(
        "options",
        str | None,
        "As ggbench and llama.cpp name them: `-ctk q8_0 -ctv q8_0`.",
        lambda change: change_options(change) or None,
    ),
    of(Change, "quant? programs needed_bytes left_bytes fits planned_n_ctx tok_s"),
    field("costs", str, "What it takes in exchange.", lambda change: COSTS[change.kind]),
)
PUBLISHED_SIZE = Shape(
    "PublishedSize",
    "A published size of it.",
    of(PublishedSize, without="row"),
    within(lambda size: size.row, PUBLISHED_ROW.fields),
)
PLAN_ROW = Shape(
    "Row",
    "What one quant needs; null is unknown, never zero.",
    of(PlanRow),
    field("changes", many(CHANGE), "What would help where it does not fit, the best first."),
    of(PlanRow, "fits_with file? exceeds_training reason?"),
    sometimes(field("against", many(PUBLISHED_SIZE), "With --against published.")),
)
"""Of a `PlanRow`."""
PLAN = Document(
    "plan",
    "plan MODEL [QUANT...]",
    "What each quant needs, before any download.",
    field("model", str),
    field(
        "machine",
        Shape("Machine", MEMORY.about, of(Budget, f"{_DEVICE} mmproj_bytes budget_bytes=usable_bytes"), _BANDWIDTH),
    ),
    field("sources", dict[str, str], "Where each kind of figure comes from."),
    of(RepoListing, "repo commit listed_at?", lambda read: read and read[0], maybe=True),
    field(
        "moved_bytes",
        int | None,
        "Downloaded for this plan: headers alone.",
        lambda read: read and read[1],
    ),
    of(RepoListing, "total_bytes", lambda read: read and read[0], maybe=True),
    field("rows", many(PLAN_ROW)),
    field("alternative", PLAN_ROW | None, "A smaller quant that was not asked for, where none of the rows fits."),
)
"""Of what `repo_read` returns, with the model's name, the `Budget` as `machine`, and the rows."""
CLUSTER_SERVE = Document(
    "cluster.serve",
    "cluster serve",
    "A server that answers; the command goes on until it is ended.",
    of(RpcServerReady),
    field("pid", int, "Of the process that serves."),
)
"""Of a `RpcServerReady`, with the process."""
CLUSTER_PROBE = Document(
    "cluster.probe",
    "cluster probe HOST:PORT...",
    "RPC servers that were asked.",
    field("servers", list[ServerProbe]),
)
CLUSTER_PLAN = Document(
    "cluster.plan",
    "cluster plan MODEL [QUANT...]",
    "The best split of each quant over the machines.",
    field("model", str),
    field("plans", list[ClusterPlan]),
)
