"""Plans as tables and JSON: the needs of each quant on one or several machines, and what would help."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from rich.console import RenderableType

from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.hub.repo_records import RepoListing
from ggbench.show import ESSENTIAL, UNKNOWN
from ggbench.show.changes import CHANGE, changes_report, left_text
from ggbench.show.document import Document, Shape, field, many, of
from ggbench.show.names import models_title, row_labels, short_device
from ggbench.show.plan_facts import plan_facts, together_text, users_text
from ggbench.show.tables import Cells, facts_table, fitted_table, left, names, notes, right, row_names, spaced
from ggbench.show.text import planned_speed_text, rows_behind_text
from ggbench.sizing.plan_record import (
    HOST_DEVICE,
    Budget,
    MemoryPart,
    MemoryPartName,
    MemoryStack,
    PlannedDevice,
    PlanRow,
)
from ggbench.stats.decode_timing import Bandwidth
from ggbench.text import in_words, sanitize
from ggbench.units import format_bytes, format_count, format_length, format_ms, format_number


def plan_report(
    budget: Budget,
    config: LlamaConfig | None,
    sources: Mapping[str, str],
    rows: Sequence[PlanRow],
    *,
    width: int,
) -> RenderableType:
    """Return facts, the table, and what would help if a quant does not fit.

    `config` is None for a checkpoint.
    """
    subjects = [row.subject for row in rows]
    shared = set.intersection(*({*row.notes} for row in rows)) if len(rows) > 1 else set()
    title, labels = f"{models_title(subjects)} on {budget.device}", row_labels(subjects)
    facts = plan_facts(budget, config, sources, rows, sorted(map(sanitize, shared)))
    dim = [row.fits is not True for row in rows]
    legend = "\n".join(_legend(rows))
    table = fitted_table(_cells(rows, budget, shared), labels=labels, dim=dim, width=width, caption=legend)
    parts: list[RenderableType] = [facts_table(title, facts), table]
    parts += [
        _memory_table(*each, width) for each in zip(rows, labels, strict=True) if _has_memories(each[0], rows)
    ]
    missing = [row for row in rows if row.fits is False and row.changes]
    nearest = max(missing, key=lambda row: row.left_bytes or 0, default=None)
    if nearest is not None:
        title = f"what would make {labels[rows.index(nearest)]} fit at n_ctx {format_count(nearest.n_ctx)}"
        is_known = budget.host is not None
        parts.append(changes_report(title, nearest.changes, width=width, is_host_known=is_known))
    return spaced(parts)


def _has_memories(row: PlanRow, rows: Sequence[PlanRow]) -> bool:
    """Return whether its memories are shown: of a single quant, and of one on several devices, main memory included."""
    n_gpus = sum(device.device != HOST_DEVICE for device in row.devices)
    return bool(row.stacks) and (len(rows) == 1 or row.is_split or n_gpus > 1)


PART_LABELS: Mapping[MemoryPartName, str] = {
    "weights": "weights", "projector": "projector", "draft": "draft", "kv": "KV", "kv_swa": "KV of windows",
    "rs": "states", "compute": "compute", "output": "outputs", "prompt_cache": "prompt cache", "process": "process",
    "reserve": "reserve",
}  # fmt: skip


def _memory_table(row: PlanRow, title: str, width: int) -> RenderableType:
    """Return a table with a row for each memory: its parts, the remainder and the total."""
    hardware = {each.device: short_device(each.name) for each in row.devices}
    layers = {each.device: str(each.n_layers) for each in row.devices}
    stacks = row.stacks
    cells = [
        names("memory", (stack.device for stack in stacks)),
        left("hardware", (hardware.get(stack.device, "") for stack in stacks), "", len(PART_LABELS)),
        right("layers", (layers.get(stack.device, "") for stack in stacks)),
        *(_part_cells(part, stacks) for part in PART_LABELS),
        right("left", map(_left_text, stacks), stays=True),
        right("total", (format_bytes(stack.memory_bytes) for stack in stacks), stays=True),
    ]
    return fitted_table([each for each in cells if not each.is_empty], title=title, width=width)


def _part_cells(part: MemoryPartName, stacks: Sequence[MemoryStack]) -> Cells:
    sizes = (sum(each.n_bytes for each in stack.parts if each.part == part) for stack in stacks)
    priority = 1 + list(PART_LABELS).index(part)
    return right(PART_LABELS[part], (format_bytes(size or None) for size in sizes), "", priority, stays=True)


def _left_text(stack: MemoryStack) -> str:
    if stack.memory_bytes is None:
        return UNKNOWN
    remainder = {part.part: part.n_bytes for part in stack.parts}
    return left_text(remainder.get("free", 0) - remainder.get("missing", 0)).removesuffix(" left")


def fit_text(row: PlanRow) -> str:
    """Return `✓ 1.2 GiB left`, which says that an incomplete file would not load."""
    if row.fits is None:
        text = UNKNOWN
    else:
        text = (
            f"{left_text(row.left_bytes)} of main memory"
            if row.lacks_main_memory
            else left_text(row.left_bytes)
        )
    return f"{text}, file incomplete" if row.missing_bytes else text


WHOLE_TRAINING = "*"
"""Follows the training context if all of it fits."""


def longest_text(row: PlanRow, found: int | None = None) -> str:
    """Return `50,176`; `32,768*` if the whole training context fits; `≥ 1,048,576` if the search ended there.

    `found` is a context found by real allocations, in place of the plan's.
    """
    longest = row.planned_n_ctx if found is None else found
    if longest is None:
        return UNKNOWN
    if longest >= (row.trained_n_ctx or math.inf):
        return f"{format_count(row.trained_n_ctx)}{WHOLE_TRAINING}"
    return f"{'≥ ' if row.reached_ceiling and found is None else ''}{format_count(longest)}"


def training_legend(rows: Sequence[PlanRow], longest: Iterable[str]) -> list[str]:
    """Return what the star of `longest_text` means; nothing if none of these texts has it."""
    if not any(WHOLE_TRAINING in text for text in longest):
        return []
    trained = [format_count(n) for n in sorted({row.n_ctx_train for row in rows if row.n_ctx_train})]
    return [
        f"{WHOLE_TRAINING}: the whole training context of {in_words(trained)} fits; llama-server uses no more"
    ]


def _cells(rows: Sequence[PlanRow], budget: Budget, shared: Set[str]) -> list[Cells]:
    """Return the columns in which some row has a value."""
    there, filled = _at({row.n_ctx for row in rows}), _at({row.n_ctx_slot or row.n_ctx for row in rows})

    def cell(header: str, text: Callable[[PlanRow], str], unit: str = "", priority: int = ESSENTIAL) -> Cells:
        return right(header, map(text, rows), unit, priority, stays=priority == ESSENTIAL)

    cells = [
        cell("BPW", lambda row: format_number(row.bpw), "bits"),
        cell("file", lambda row: format_bytes(row.file_bytes), "", 1),
        cell("memory", lambda row: format_bytes(row.needed_bytes), there),
        left("fits", map(fit_text, rows), there, stays=True),
        cell("max n_ctx", longest_text, "tokens"),
        cell("tok/s", lambda row: format_number(row.at_n_ctx.tok_s) if row.at_n_ctx else UNKNOWN, filled, 2),
        cell("expected", lambda row: planned_speed_text(row.expected), f"tok/s {filled}"),
        cell(users_text(rows), together_text, "each / all", 1),
        cell("W", _w_text, "tokens/ms", 3),
        cell("B", _b_text, "ms", 2),
        cell(
            "on GPU" if budget.on_gpu else "weights", lambda row: format_bytes(row.device_weight_bytes), "", 4
        ),
        cell("on CPU", lambda row: format_bytes(row.host_weight_bytes or None), "", 6),
        cell("KV", lambda row: format_bytes(row.device_kv_bytes), there, 5),
        cell("KV on CPU", _host_kv_text, "", 4),
        cell("compute", lambda row: format_bytes(row.compute_bytes), there, 7),
        cell("draft", lambda row: format_bytes(row.draft_bytes), there, 5),
    ]
    about = notes(_note(row, shared) for row in rows)
    return [*row_names([row.subject for row in rows]), *(each for each in cells if not each.is_empty), about]


def _at(lengths: Set[int | None]) -> str:
    """Return `at 8k` if all rows have this context."""
    known = [n_ctx for n_ctx in lengths if n_ctx is not None]
    return f"at {format_length(known[0])}" if len(known) == 1 else "at n_ctx"


def _w_text(row: PlanRow) -> str:
    return UNKNOWN if row.limit is None else format_number(row.limit.w_tokens_per_ms, 4)


def _b_text(row: PlanRow) -> str:
    return UNKNOWN if row.limit is None else format_ms(row.limit.b_ms)


def _host_kv_text(row: PlanRow) -> str:
    return format_bytes((row.kv_bytes or 0) - (row.device_kv_bytes or 0) or None)


def _note(row: PlanRow, shared: Set[str]) -> str:
    if row.outcome is not Outcome.COMPLETED:
        return sanitize(row.reason)
    return sanitize("; ".join(note for note in row.notes if note not in shared))


def _legend(rows: Sequence[PlanRow]) -> list[str]:
    lines = training_legend(rows, map(longest_text, rows))
    if any(row.limit for row in rows):
        lines.append("tok/s, W, B: limits of the memory bandwidth; latency(n) = (n - 1) / W + B")
    expected = [row.expected for row in rows if row.expected is not None]
    if expected:
        lines.append(f"expected: {', '.join(dict.fromkeys(each.basis for each in expected))}")
    behind = rows_behind_text(name for each in expected for name in each.rows)
    return [*lines, behind] if behind else lines


_DEVICE = "device on_gpu memory_bytes memory_source reserve_bytes reserve_source"
_PROJECTOR = (
    *field(
        "mmproj_bytes",
        int,
        "A projector in this memory, without its compute buffer.",
        lambda budget: budget.projector.weight_bytes if budget.projector else 0,
    ),
    *field(
        "mmproj_compute_bytes",
        int,
        "Upper bound of the projector's compute buffer at llama.cpp's warm-up image; 0 if none is known.",
        lambda budget: budget.projector.compute_bytes if budget.projector else 0,
    ),
)
_BANDWIDTH = of(
    Bandwidth,
    "bandwidth_bytes_per_s=bytes_per_s bandwidth_source=source",
    lambda budget: budget.bandwidth,
    maybe=True,
)
MEMORY = Shape("Machine", "The memory budget.", of(Budget, f"{_DEVICE} budget_bytes=usable_bytes"), _BANDWIDTH)
DEVICE = Shape(
    "Device",
    "Memory taken on one GPU, or in main memory as the last; null where the size of main memory is unknown.",
    of(PlannedDevice),
    of(PlannedDevice, "needed_bytes left_bytes"),
)
_STACK = Shape(
    "MemoryStack",
    "Contents of one memory, each byte in one part.",
    of(MemoryStack),
    field("parts", many(Shape("MemoryPart", "A part of it.", of(MemoryPart)))),
)
PLAN_ROW = Shape(
    "Row",
    "The needs of one quant; null means unknown, never zero.",
    of(PlanRow),
    field("changes", many(CHANGE), "What would help if it does not fit, the best first."),
    field("devices", many(DEVICE), "By device, if the plan is for a GPU; main memory is the last."),
    field("stacks", many(_STACK), "Contents of each memory; main memory is the last."),
    of(PlanRow, "file? exceeds_training reason?"),
)
PLAN = Document(
    "plan",
    "plan MODEL [QUANT...]",
    "The needs of each quant, before any download.",
    field("model", str),
    field(
        "machine",
        Shape(
            "Machine",
            MEMORY.about,
            of(Budget, _DEVICE),
            _PROJECTOR,
            of(Budget, "cache_ram_bytes n_checkpoints budget_bytes=usable_bytes"),
            _BANDWIDTH,
        ),
    ),
    field("sources", dict[str, str], "The source of each kind of number."),
    of(RepoListing, "repo commit listed_at?", lambda read: read and read[0], maybe=True),
    field("moved_bytes", int | None, "Downloaded for this plan: only headers.", lambda read: read and read[1]),
    of(RepoListing, "total_bytes", lambda read: read and read[0], maybe=True),
    field("rows", many(PLAN_ROW)),
    field("alternative", PLAN_ROW | None, "A smaller quant that was not requested, if no row fits."),
)
"""Made from what `repo_read` returns, with model, `machine` (a `Budget`) and rows."""
