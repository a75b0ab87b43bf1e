"""Plans as tables and JSON: the needs of each quant on one or several machines, and what would help."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from ggbench.engines.contract import config_type
from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.hub.repo_records import RepoListing
from ggbench.show import ESSENTIAL, FITS_NOT, UNKNOWN
from ggbench.show.changes import CHANGE, changes_report, left_text
from ggbench.show.document import Document, Shape, field, many, of
from ggbench.show.names import models_title, row_labels, short_device
from ggbench.show.plan_facts import plan_facts, together_text, users_text
from ggbench.show.tables import Cells, facts_table, fitted_table, left, names, notes, right, row_names
from ggbench.show.text import planned_speed_text, rows_behind_text
from ggbench.sizing.plan_record import (
    HOST_DEVICE,
    Budget,
    MemoryPart,
    MemoryPartName,
    MemoryStack,
    PlannedDevice,
    PlannedSpeed,
    PlanRow,
)
from ggbench.stats.decode_timing import Bandwidth
from ggbench.text import in_words, sanitize
from ggbench.units import format_bytes, format_count, format_length, format_ms, format_number

_MOST_SOURCES = 4
"""Number of sources of expected speeds named under the table."""


def plan_report(
    budget: Budget, config: LlamaConfig | None, sources: Mapping[str, str], rows: Sequence[PlanRow], *, width: int
) -> RenderableType:
    """Return facts, the table, and what would help if a quant does not fit.

    `config` is None for a checkpoint.
    """
    subjects = [row.subject for row in rows]
    common = rows[0].notes if len(rows) > 1 else ()
    shared = [sanitize(note) for note in common if all(note in row.notes for row in rows)]
    title, labels = f"{models_title(subjects)} on {budget.device}", row_labels(subjects)
    parts: list[RenderableType] = [
        Padding(facts_table(title, plan_facts(budget, config, sources, rows, shared)), (0, 0, 1, 0)),
        fitted_table(
            _cells(rows, budget, shared),
            labels=labels,
            dim=[row.fits is not True for row in rows],
            width=width,
        ),
    ]
    shown = [
        each for each in zip(rows, labels, strict=True) if each[0].stacks and (len(rows) == 1 or _is_spread(each[0]))
    ]
    parts += [Padding(_memory_table(*each, width), (1, 0, 0, 0)) for each in shown]
    if legend := _legend(rows, budget):
        parts.append(Text(legend, style="dim"))
    missing = [row for row in rows if row.fits is False and row.changes]
    nearest = max(missing, key=lambda row: row.left_bytes or 0, default=None)
    if nearest is not None and nearest.n_ctx is not None:
        name = labels[rows.index(nearest)] if len(rows) > 1 else "it"
        title = f"what would make {name} fit at n_ctx {format_count(nearest.n_ctx)}"
        is_known = budget.host is not None
        parts.append(Padding(changes_report(title, nearest.changes, width=width, is_host_known=is_known), (1, 0, 0, 0)))
    return Group(*parts)


def _is_spread(row: PlanRow) -> bool:
    """Return whether a model is on several devices, main memory included."""
    has_host = bool(row.devices) and row.devices[-1].device == HOST_DEVICE
    return row.is_split or len(row.devices) > 1 + has_host


PART_LABELS: Mapping[MemoryPartName, str] = {
    "weights": "weights", "projector": "projector", "draft": "draft", "kv": "KV", "kv_swa": "KV of windows",
    "rs": "states", "compute": "compute", "output": "outputs", "prompt_cache": "prompt cache", "process": "process",
    "reserve": "reserve",
}  # fmt: skip
_MOST_COLUMNS = 3
"""Number of memories up to which each may have a column; more have a row each."""


def _memory_table(row: PlanRow, title: str, width: int) -> RenderableType:
    """Return a table with a column for each memory, or a row if that is too wide: its parts, the remainder and the
    total.
    """
    stacks, by_name = row.stacks, {device.device: device for device in row.devices}
    devices = [by_name.get(stack.device) for stack in stacks]
    sizes = [{part.part: part.n_bytes for part in stack.parts} for stack in stacks]
    parts = [part for part in PART_LABELS if any(part in size for size in sizes)]
    lefts = [
        None if stack.memory_bytes is None else size.get("free", 0) - size.get("missing", 0)
        for stack, size in zip(stacks, sizes, strict=True)
    ]
    lines = {
        **({"layers": [str(device.n_layers) if device else "" for device in devices]} if row.devices else {}),
        **{PART_LABELS[part]: [format_bytes(size.get(part)) for size in sizes] for part in parts},
        "left": [left_text(left_bytes).removesuffix(" left") for left_bytes in lefts],
        "total": [format_bytes(stack.memory_bytes) for stack in stacks],
    }
    hardware = [short_device(device.name) if device else "" for device in devices]
    columns = [
        names("memory", lines),
        *(
            right(stack.device, column, unit, stays=True)
            for stack, unit, column in zip(stacks, hardware, zip(*lines.values(), strict=True), strict=True)
        ),
    ]
    if len(stacks) <= _MOST_COLUMNS and sum(each.width for each in columns) <= width:
        return fitted_table(columns, title=title, width=width)
    cells = [names("memory", (stack.device for stack in stacks)), left("hardware", hardware, "", len(lines))]
    kept = ("layers", "left", "total")
    cells += [
        right(label, line, "", ESSENTIAL if label in kept else priority, stays=True)
        for priority, (label, line) in enumerate(lines.items(), 1)
    ]
    dim = [left_bytes is not None and left_bytes < 0 for left_bytes in lefts]
    return fitted_table(cells, dim=dim, title=title, width=width)


def fit_text(row: PlanRow) -> str:
    """Return `✓ 1.2 GiB left`, which says that an incomplete file would not load."""
    text = UNKNOWN if row.fits is None else left_text(row.left_bytes) + " of main memory" * row.lacks_main_memory
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


def training_legend(rows: Sequence[PlanRow], longest: Sequence[str]) -> list[str]:
    """Return what the star of `longest_text` means; nothing if none of these texts has it."""
    trained = [format_count(n) for n in sorted({row.n_ctx_train for row in rows if row.n_ctx_train})]
    if not any(WHOLE_TRAINING in text for text in longest):
        return []
    slots = " in a slot" if any(row.setup is not None and row.setup.n_seq_max > 1 for row in rows) else ""
    fits = f"the whole training context of {in_words(trained)} fits"
    return [f"{WHOLE_TRAINING}: {fits}; llama-server uses no more{slots}"]


def _cells(rows: Sequence[PlanRow], budget: Budget, shared: Sequence[str]) -> list[Cells]:
    asked = {row.n_ctx for row in rows if row.n_ctx is not None}
    there = f"at {format_length(*asked)}" if len(asked) == 1 else "at n_ctx"
    slots = {row.n_ctx_slot for row in rows if row.n_ctx_slot is not None}
    filled = f"at {format_length(*slots)}" if len(slots) == 1 else there
    cells = [
        *row_names([row.subject for row in rows]),
        right("BPW", (format_number(row.bpw) for row in rows), "bits", stays=True),
        right("file", (format_bytes(row.file_bytes) for row in rows), "", 1, stays=True),
        right("memory", (format_bytes(row.needed_bytes) for row in rows), there, stays=True),
        left("fits", map(fit_text, rows), there, stays=True),
        right("max n_ctx", map(longest_text, rows), "tokens", stays=True),
    ]
    if any(row.at_n_ctx for row in rows):
        cells.append(right("tok/s", _speeds([row.at_n_ctx for row in rows]), filled, stays=True))
    if any(row.expected for row in rows):
        expected = [planned_speed_text(row.expected) for row in rows]
        cells.append(right("expected", expected, f"tok/s {filled}", stays=True))
    if len(rows) > 1 and any(row.together for row in rows):
        cells.append(right(users_text(rows), map(together_text, rows), "each / all", 1, stays=True))
    if any(row.limit for row in rows):
        w, b = ([getattr(row.limit, name, None) for row in rows] for name in ("w_tokens_per_ms", "b_ms"))
        cells.append(right("W", (format_number(each, 4) for each in w), "tokens/ms", 3))
        cells.append(right("B", map(format_ms, b), "ms", 2))
    is_split = _is_split(rows, budget)
    held = (format_bytes(row.device_weight_bytes) for row in rows)
    cells.append(right("on GPU" if is_split else "weights", held, "", 4))
    if is_split:
        cells.append(right("on CPU", (format_bytes(row.host_weight_bytes) for row in rows), priority=6))
    cells.append(right("KV", (format_bytes(row.device_kv_bytes) for row in rows), there, 5))
    elsewhere = [None if row.kv_bytes is None else row.kv_bytes - (row.device_kv_bytes or 0) for row in rows]
    if any(elsewhere):
        cells.append(right("KV on CPU", map(format_bytes, elsewhere), priority=4))
    cells.append(right("compute", (format_bytes(row.compute_bytes) for row in rows), there, 7))
    if any(row.draft_bytes for row in rows):
        cells.append(right("draft", (format_bytes(row.draft_bytes) for row in rows), there, 5))
    for index, speed in enumerate(next((row.decode for row in rows if row.decode), ())):
        if (slots or asked) != {speed.n}:
            texts = _speeds([row.decode[index] if row.decode else None for row in rows])
            cells.append(right("tok/s", texts, f"at {format_length(speed.n)}", 8))
    own = ("; ".join(text for note in row.notes if (text := sanitize(note)) not in shared) for row in rows)
    reasons = (None if row.outcome is Outcome.COMPLETED else sanitize(row.reason) for row in rows)
    return [*cells, notes(text if reason is None else reason for text, reason in zip(own, reasons, strict=True))]


def _is_split(rows: Sequence[PlanRow], budget: Budget) -> bool:
    """Return whether some weights stay with the CPU, as llama.cpp's input embedding does."""
    return budget.on_gpu and (not rows or any(config_type(row.engine).loads_gguf for row in rows))


def _speeds(speeds: Sequence[PlannedSpeed | None]) -> list[str]:
    """Format speeds, marking those of a context that does not fit."""
    marked = any(speed is not None and speed.fits is False for speed in speeds)
    marks = (FITS_NOT if speed and speed.fits is False else " " * marked for speed in speeds)
    return [f"{format_number(speed.tok_s if speed else None)}{mark}" for speed, mark in zip(speeds, marks, strict=True)]


def _legend(rows: Sequence[PlanRow], budget: Budget) -> str:
    lines = []
    if _is_split(rows, budget):
        lines.append("on GPU, on CPU: location of the weights; the input embedding stays with the CPU")
    lines += training_legend(rows, list(map(longest_text, rows)))
    if any(row.decode for row in rows):
        lines.append("tok/s, W, B: limits of the memory bandwidth; latency(n) = (n - 1) / W + B")
    if len(rows) > 1 and any(row.together and row.together.tok_s_estimate for row in rows):
        lines.append("~: expected, from what is known of one user or of several")
    sources = list(dict.fromkeys(row.expected.basis for row in rows if row.expected is not None))
    if sources:
        more = [f"{len(sources) - _MOST_SOURCES} more"] if len(sources) > _MOST_SOURCES else []
        lines.append(f"expected: {', '.join([*sources[:_MOST_SOURCES], *more])}")
    if behind := rows_behind_text(name for row in rows if row.expected is not None for name in row.expected.rows):
        lines.append(behind)
    if any(speed.fits is False for row in rows for speed in (*row.decode, *filter(None, [row.at_n_ctx]))):
        lines.append(f"{FITS_NOT} after a speed: a context of that length does not fit")
    return "\n".join(lines)


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
    Bandwidth, "bandwidth_bytes_per_s=bytes_per_s bandwidth_source=source", lambda budget: budget.bandwidth, maybe=True
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
    of(PlanRow, "fits_with file? exceeds_training reason?"),
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
