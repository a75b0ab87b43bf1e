"""Plans: the figures of each quant and device, the answer with what is behind it, and JSON."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.defaults import CACHE_RAM_BYTES
from ggbench.expect.drafts import DraftStep
from ggbench.fields import config_options
from ggbench.machine.description import GIVEN_GPU
from ggbench.show.answer import Answer, Facts, Part, Table
from ggbench.show.changes import (
    CHANGE,
    CHANGE_FIGURES,
    change_options,
    changes_table,
    left_text,
)
from ggbench.show.document import Document
from ggbench.show.figure import Figure, facts_of, figure_values, figures_type, member
from ggbench.show.names import model_names, models_title, row_labels, short_device
from ggbench.show.text import slots_text
from ggbench.show.words import said, say
from ggbench.sizing.plan_record import (
    HOST_DEVICE,
    Budget,
    Change,
    EnginePlan,
    PlannedDevice,
    PlanRow,
)
from ggbench.stats.decode_timing import Bandwidth
from ggbench.stats.intervals import Estimate, Expected
from ggbench.stats.speed_curve import SessionTime
from ggbench.text import in_words
from ggbench.units import (
    GIB,
    MIB,
    counted,
    exact_size,
    format_bandwidth,
    format_bytes,
    format_count,
    format_length,
    format_number,
    format_span,
)


def basis_mark(expected: Expected | None) -> str:
    """Return `!` for a value of a disturbed run, `~` for an estimated one."""
    if expected is None:
        return ""
    if expected.is_estimate:
        return "~"
    return "" if expected.is_steady else "!"


def value_only(estimate: Estimate) -> str:
    """Return an estimate to two digits, without its interval."""
    return format_number(estimate.value, 2)


def ends_only(estimate: Estimate, digits: int = 3) -> str:
    """Return only the interval of an estimate, `17.2–31.0`."""
    return f"{format_number(estimate.low, digits)}–{format_number(estimate.high, digits)}"


def span_text(estimate: Estimate | None) -> str:
    """Return the value of a time in seconds: `11 min`."""
    return format_span(None if estimate is None else estimate.value)


def session_text(time: SessionTime | None, quant: str) -> str:
    """Return how long a session takes: `A coding session of 40 turns: ~11 min (8–15 min) ...`"""
    if time is None:
        return ""
    total = time.total_s
    mark = basis_mark(total or time.tok_s)
    turns = counted(time.n_turns, "turn") + (f" with {quant}" if quant else "")
    key, ends = "answers", ""
    if total is not None:
        key, low, high = "takes", format_span(total.low), format_span(total.high)
        is_unit_same = low.partition(" ")[2] == high.partition(" ")[2]
        ends = f"{low.partition(' ')[0] if is_unit_same else low}–{high}"
    said_time = say(
        f"expected_session.{key}",
        workload=time.name,
        turns=turns,
        n_tokens=time.n_tokens,
        total=f"{mark}{span_text(total or time.answers_s)}",
        ends=ends,
        first_wait=f"{mark}{span_text(time.first_wait_s)}",
        last_wait=f"{mark}{span_text(time.last_wait_s)}",
    )
    again = say("expected_session.again", n_reread=time.n_reread)
    return f"{said_time} {again}" if time.n_reread else said_time


def gains_text(step: DraftStep) -> str:
    """Return `1.6 times (1.3–1.9) for code, 1.4 times (1.1–1.7) for chat`."""
    said_of = []
    for task in step.lengths:
        gain = step.gain(task)
        said_of.append(say("drafting.gain", gain=value_only(gain), ends=ends_only(gain, 2), task=task))
    return ", ".join(said_of)


def _is_open(row: PlanRow) -> bool:
    """Return whether longer contexts than the longest were not tried, though the model may have one."""
    return row.reached_ceiling and (row.planned_n_ctx or 0) < (row.trained_n_ctx or 1 << 62)


PLAN_FIGURES: Mapping[str, Figure[PlanRow]] = {
    each.key: each
    for each in (
        member("quant", "quant"),
        member(
            "file_bytes",
            "file",
            format_bytes,
            meaning="Size of the file; (~) typical of its publisher's mixture.",
            priority=4,
            mark=lambda row: "~" if any(note.key == "plan.typical" for note in row.notes) else "",
        ),
        member(
            "needed_bytes",
            "memory",
            format_bytes,
            meaning="Weights, cache, compute buffers and draft in the planned memory.",
            priority=2,
        ),
        member(
            "left_bytes",
            "fits",
            left_text,
            meaning="Bytes left of the budget, in the memory with the least; negative if memory is missing.",
        ),
        Figure[PlanRow](
            "max_n_ctx",
            "max n_ctx",
            lambda row: row.used_of(row.planned_n_ctx) if row.planned_n_ctx else None,
            meaning="The longest context that fits, at most the training context in each slot.",
            better="more",
            priority=3,
            mark=lambda row: "≥ " if _is_open(row) else "",
        ),
        member(
            "tok_s",
            "tok/s",
            value_only,
            "expected",
            is_estimate=True,
            meaning="Expected speed with a full context [tokens/s]; null if unknown.",
            better="more",
            mark=lambda row: basis_mark(row.expected),
        ),
        member(
            "tok_s_together",
            "all users",
            value_only,
            "expected_together",
            is_estimate=True,
            meaning="Expected speed of all slots at once [tokens/s].",
            priority=1,
            mark=lambda row: "~",
        ),
        member(
            "kld",
            "loss",
            value_only,
            "loss",
            is_estimate=True,
            meaning="Mean KL divergence from the original in nats, of a quality run, else (~) typical of the quant."
            " A quantized KV cache adds its own. A typical one's interval is the range over models.",
            better="less",
            mark=lambda row: basis_mark(row.loss),
        ),
        member("bpw", "BPW", format_number, meaning="Bits per weight."),
        member(
            "limit_tok_s",
            "limit",
            format_number,
            unit="tok/s",
            meaning="Bound by the memory bandwidth with a full context; no speed.",
        ),
        member("device_weight_bytes", "weights", format_bytes, meaning="Weights in the planned memory."),
        member("device_kv_bytes", "KV", format_bytes, meaning="The cache in the planned memory."),
        member("compute_bytes", "compute", format_bytes, meaning="Compute buffers in the planned memory."),
    )
}
"""The figures of a quant's plan, by key."""
PLACED: Figure[PlanRow] = Figure("options", "options", lambda row: row.options if row.is_split else "")
_FRONT = ("quant", "file_bytes", "needed_bytes", "left_bytes", "max_n_ctx", "tok_s", "tok_s_together", "kld")
_BEHIND = ("quant", "bpw", "tok_s", "limit_tok_s")
INTERVALS: Sequence[Figure[PlanRow]] = (
    member("tok_s_ci95", "tok/s, 95 %", ends_only, "expected"),
    member("kld_ci95", "loss, range", ends_only, "loss"),
)


HOST_FIGURES: Sequence[Figure[Budget]] = (
    member("host_bytes", "main memory", format_bytes, "beside.free_bytes", meaning="Main memory beside GPUs."),
    member("host_reserve_bytes", "kept free of it", format_bytes, "beside.reserve_bytes"),
    member("host_bandwidth", "its bandwidth", format_bandwidth, "beside.bandwidth.bytes_per_s"),
    member("host_bandwidth_source", "", path="beside.bandwidth.source"),
)
MACHINE_FIGURES: Sequence[Figure[Budget]] = (
    member("device", "device"),
    member("memory_bytes", "memory", format_bytes),
    member("memory_source", ""),
    member("reserve_bytes", "reserve (--reserve)", format_bytes),
    member("reserve_source", ""),
    member("budget_bytes", "usable", format_bytes, "usable_bytes", meaning="Bytes for the model."),
    member(
        "mmproj_bytes", "projector", format_bytes, "projector.weight_bytes", meaning="Weights of the projector."
    ),
    member(
        "mmproj_compute_bytes",
        "to compute, at most",
        format_bytes,
        "projector.compute_bytes",
        meaning="Upper bound of its compute buffer at llama.cpp's warm-up image; larger ones take more.",
    ),
    member("draft_model", "draft", path="draft.model"),
    member("bandwidth_bytes_per_s", "bandwidth", format_bandwidth, "bandwidth.bytes_per_s"),
    member("bandwidth_source", "", path="bandwidth.source"),
    *HOST_FIGURES,
)
"""A plan's memory, by the members of its budget."""


def _n_ubatch(row: PlanRow) -> int | None:
    """Return the physical batch, which llama.cpp clamps to n_batch, and that to n_ctx."""
    setup = row.setup
    return None if setup is None or row.n_ctx is None else min(setup.n_ubatch, setup.n_batch, row.n_ctx)


_SETUP: Sequence[Figure[PlanRow]] = (
    Figure("n_ubatch", "n_ubatch", _n_ubatch),
    member("flash_attn", "flash attention"),
    member("draft_bytes", "draft takes", format_bytes),
)


def _none_of_zero(n_bytes: int) -> str:
    return format_bytes(n_bytes or None)


DEVICE_FIGURES: Sequence[Figure[PlannedDevice]] = (
    member("device", "device"),
    Figure("name", "", lambda device: short_device(device.name), priority=4),
    member("n_layers", "layers"),
    member("weight_bytes", "weights", _none_of_zero),
    member("kv_bytes", "KV", _none_of_zero, meaning="The cache, with recurrent states."),
    member(
        "compute_bytes",
        "compute",
        _none_of_zero,
        meaning="Compute buffers; in main memory with the logits.",
        priority=3,
    ),
    member("draft_bytes", "draft", _none_of_zero, meaning="Everything of a draft."),
    member("left_bytes", "fits", left_text, meaning="Bytes left; negative if memory is missing."),
    member("memory_bytes", "of", format_bytes, meaning="All of the memory; null if unknown.", priority=2),
)
_NEEDED = (member("needed_bytes", "needed", format_bytes), member("usable_bytes", "usable", format_bytes))


def at_n_ctx(figure: Figure[PlanRow], rows: Iterable[PlanRow]) -> Figure[PlanRow]:
    """Return a speed with the context that all rows have in a slot in its header, `tok/s at 16k`; unknown is `?`.

    What does not fit has none.
    """
    lengths = {row.n_ctx_slot or row.n_ctx for row in rows} - {None}
    where = format_length(*lengths) if len(lengths) == 1 else "n_ctx"
    return replace(
        figure,
        header=f"{figure.header} at {where}",
        get=lambda row: None if row.fits is False else figure.get(row) or "?",
        form=lambda value: value if isinstance(value, str) else figure.form(value),
    )


_MOST_ROWS = 10
"""Quants in front if none was asked for by name."""


def plan_answer(plan: EnginePlan, headers: str = "", *, is_named: bool = True) -> Answer:
    """Return what fits, with the figures of each quant, and of each device if the model is on several.

    `headers` says what was read. Of many quants that nobody named, those around the largest that fits are in front.
    """
    rows = [*plan.rows, *filter(None, [plan.alternative])]
    nearest = _nearest(plan.rows)
    helped = max(filter(_is_helped, plan.rows), key=_weight, default=nearest)
    largest = max(_fitting(rows), key=_weight, default=nearest)
    devices = () if largest is None else _apart(largest)
    front = rows if is_named or largest is None else _around(rows, largest, nearest)
    parts: list[Part] = [_front_table(plan.budget, front)]
    if largest is not None and devices:
        parts.append(Table(DEVICE_FIGURES, devices, say("plan.by_device", quant=largest.quant)))
    n_more = len(rows) - len(front)
    notes = _lacking(plan.rows) if is_named else []
    others = [_front_table(plan.budget, [row for row in rows if row not in front])] if n_more else []
    return Answer(
        _sentence(plan, nearest),
        "" if helped is None or _fitting(plan.rows) else _next(helped),
        parts,
        [*notes, *_notes(plan, rows, helped, n_more)],
        [*others, *_behind(plan, rows, headers)],
    )


def _lacking(rows: Sequence[PlanRow]) -> list[str]:
    """Return which quants no repo is known to have."""
    return [said(note) for row in rows for note in row.notes if note.key == "plan.lacking_quant"]


def _weight(row: PlanRow) -> int:
    return row.weight_bytes or 0


def _fitting(rows: Sequence[PlanRow]) -> list[PlanRow]:
    return [row for row in rows if row.fits]


def _nearest(rows: Sequence[PlanRow]) -> PlanRow | None:
    """Return the quant that lacks least; None if all fit."""
    misfits = [row for row in rows if row.fits is False]
    return max(misfits, key=lambda row: row.left_bytes or 0, default=None)


def _is_hopeless(row: PlanRow) -> bool:
    """Return whether no change of its setup makes a quant fit."""
    return row.fits is False and not any(each.fits and each.setup is not None for each in row.changes)


def _is_helped(row: PlanRow) -> bool:
    """Return whether a quant that does not fit does with another cache, or at least half the context."""
    half = (row.n_ctx or 0) / 2
    return any(
        each.fits and each.setup is not None and not each.host_bytes and (each.setup.n_ctx or 0) >= half
        for each in row.changes
    )


def _notes(plan: EnginePlan, rows: Sequence[PlanRow], helped: PlanRow | None, n_more: int) -> list[str]:
    """Return what to mind: an assumed memory, quants left out, troubles, how one of them would fit, and what speeds are
    from.
    """
    budget = plan.budget
    draft = next((row.setup for row in rows if row.draft_bytes), None)
    notes = [
        assumed_memory(budget, rows),
        card_order(budget, rows[0].setup),
        say("plan.more", rows=counted(n_more, "more quant")) if n_more else "",
        *(
            say("plan.failed", quant=row.quant, why=row.reason)
            for row in rows
            if row.outcome is not Outcome.COMPLETED
        ),
        beyond_training(plan),
        _reserve(budget, rows),
        "" if helped is None else remedy(budget, helped),
        _session(rows),
        estimated_from(budget, rows),
        "" if draft is None else say("plan.drafting", k=draft.spec_draft_n_max),
    ]
    return [*filter(None, notes)]


def _session(rows: Sequence[PlanRow]) -> str:
    """Return how long a session takes with the largest quant that fits."""
    best = max(_fitting(rows), key=lambda row: row.weight_bytes or 0, default=rows[0])
    quant = best.quant if len(rows) > 1 else ""
    return session_text(best.session, quant) if best.fits else ""


def _reserve(budget: Budget, rows: Sequence[PlanRow]) -> str:
    """Return that a quant misses a GPU by less than its reserve; empty without one."""
    n_bytes = max((device.reserve_bytes for device in budget.devices), default=0)
    if not any(-n_bytes < (row.left_bytes or 0) < 0 for row in rows):
        return ""
    return say("plan.reserve", kept=format_bytes(n_bytes), why=budget.reserve_source)


def _apart(row: PlanRow) -> Sequence[PlannedDevice]:
    """Return the devices if the model is on several, or partly in main memory."""
    n_gpus = sum(device.device != HOST_DEVICE for device in row.devices)
    return row.devices if n_gpus > 1 or (n_gpus and row.is_split) else ()


def _around(rows: Sequence[PlanRow], largest: PlanRow, nearest: PlanRow | None) -> Sequence[PlanRow]:
    """Return the quants around one, of those that do not fit only the nearest and what a change makes fit."""
    kept = [row for row in rows if row is nearest or not _is_hopeless(row)]
    start = max(0, min(kept.index(largest) - _MOST_ROWS // 2, len(kept) - _MOST_ROWS))
    return kept[start : start + _MOST_ROWS]


def beyond_training(plan: EnginePlan) -> str:
    """Return that the model was trained with less context than was asked for; empty if it was not."""
    return say("pick.beyond_training", n_ctx_train=plan.rows[0].n_ctx_train) if plan.is_capped else ""


def _sentence(plan: EnginePlan, nearest: PlanRow | None) -> str:
    """Return which quants fit, and how much the nearest other one lacks."""
    fitting = sorted(_fitting(plan.rows), key=_weight, reverse=True)
    of = [*fitting, *plan.rows][0]
    values = {
        "model": models_title([row.subject for row in plan.rows]),
        "fit": "fits" if len(set(model_names([row.subject for row in plan.rows]))) == 1 else "fit",
        "device": _place(plan.budget),
        "n_ctx": format_count(of.n_ctx),
        "quants": _quants(fitting or plan.rows),
    }
    if nearest is None:
        return say("plan.fits" if fitting else "plan.unknown", **values)
    short = {"nearest": nearest.quant, "short": shortage(nearest)}
    if fitting:
        return say("plan.fits_some", **values, **short)
    other = "" if plan.alternative is None else plan.alternative.quant
    return say("plan.fits_other" if other else "plan.fits_none", **values, **short, other=other)


def shortage(row: PlanRow) -> str:
    """Return `2.34 GiB short`, of several memories `2.34 GiB short on CUDA0`."""
    size = format_bytes(-(row.left_bytes or 0))
    fullest = next((each.device for each in _apart(row) if each.left_bytes == row.left_bytes), "")
    return say("plan.short_on" if fullest else "plan.short", size=size, device=fullest)


def _place(budget: Budget) -> str:
    """Return `2 x RTX 3090`, `main memory`, `12.0 GiB of GPU memory`."""
    if not budget.on_gpu:
        return "main memory"
    return short_device(budget.device).replace(GIVEN_GPU, f"{format_bytes(budget.memory_bytes)} of GPU memory")


def _quants(rows: Sequence[PlanRow]) -> str:
    """Return `q4_k_m and q3_k_m`, of many only the largest."""
    if len(rows) <= 3:
        return in_words(row_labels([row.subject for row in rows]))
    return say("plan.many", best=rows[0].quant, rest=counted(len(rows) - 1, "smaller quant"))


def _front_table(budget: Budget, rows: Sequence[PlanRow]) -> Table[PlanRow]:
    has_users = any(row.expected_together for row in rows)
    figures = [PLAN_FIGURES[key] for key in _FRONT if has_users or key != "tok_s_together"]
    figures.insert(1, PLACED)
    named = dict(zip(map(id, rows), model_names([row.subject for row in rows]), strict=True))
    if len(set(named.values())) > 1:
        figures.insert(0, Figure("model", "model", lambda row: named[id(row)]))
    return Table(
        [at_n_ctx(each, rows) if each.key.startswith("tok_s") else each for each in figures],
        rows,
        _setup(budget, rows),
        style=lambda row: "" if row.fits else "dim",
    )


def _setup(budget: Budget, rows: Sequence[PlanRow]) -> str:
    """Return the memory and the setup of a plan: `10.8 GiB usable of 12.0 GiB, n_ctx 16,384, KV f16`."""
    n_ctx = max((row.n_ctx for row in rows if row.n_ctx is not None), default=None)
    setup = next((row.setup for row in rows if row.setup is not None), None)
    return say(
        "plan.setup",
        usable=format_bytes(budget.usable_bytes),
        memory=format_bytes(budget.memory_bytes),
        n_ctx=format_count(n_ctx) + (slots_text(setup, n_ctx) if setup and n_ctx else ""),
        kv="/".join(dict.fromkeys(kind for row in rows for kind in (row.type_k, row.type_v))),
    )


def _larger_share(budget: Budget, row: PlanRow) -> str:
    """Return how to give a described GPU as much of the main memory that it shares as a quant needs; empty if that has
    too little, or the system no setting for it.
    """
    if not budget.is_unified or budget.is_here:
        return ""
    setting = _SHARE_SETTINGS.get(budget.devices[0].backend, "")
    missing_bytes = -(row.left_bytes or 0)
    host_bytes = 0 if budget.host is None else budget.host.free_bytes
    if not setting or missing_bytes > min(row.devices[-1].left_bytes or 0, host_bytes - _SYSTEM_BYTES):
        return ""
    mib = math.ceil((budget.memory_bytes + missing_bytes) / MIB)
    command = setting.format(mib=mib, pages=mib * 256)
    return say("plan.larger_share", quant=row.quant, command=command, mib=str(mib))


_SYSTEM_BYTES = 4 * GIB
"""What a larger share leaves the system of main memory at least."""
_TTM = "boot Linux with ttm.pages_limit={pages}"
_SHARE_SETTINGS = {"MTL": "sudo sysctl iogpu.wired_limit_mb={mib}", "ROCm": _TTM, "Vulkan": _TTM}
"""How macOS and Linux, in pages of 4 KiB, let a GPU take more of main memory."""


def remedy(budget: Budget, row: PlanRow) -> str:
    """Return what would make a quant fit, the best first; another quant only if nothing else would."""
    enough = {change.kind: _way(change) for change in row.changes if change.fits and change.setup is not None}
    if "n_cpu_moe" in enough:
        enough.pop("n_gpu_layers", None)  # slower than experts in main memory
    if "KV q8_0" not in enough and (share := _larger_share(budget, row)):
        return share
    if enough:
        return say("plan.remedy", quant=row.quant, ways=", or ".join(enough.values()))
    other = next((each.quant for each in row.changes if each.fits and each.quant), "")
    return say("plan.other_quant" if other else "plan.no_remedy", quant=row.quant, other=other)


def _next(row: PlanRow) -> str:
    """Return the plan with the cheapest change that is enough; empty without one."""
    changed = next((each.setup for each in row.changes if each.fits and each.setup is not None), None)
    if changed is None or not row.command:
        return ""
    asked = shlex.join(config_options(row.setup))
    return f"{row.command.removesuffix(asked).rstrip()} {shlex.join(config_options(changed))}"


def _way(change: Change) -> str:
    options, tok_s = change_options(change), change.expected
    if not change.host_bytes:
        return say("plan.with", options=options)
    if tok_s is None:
        return say("plan.with_host", options=options, size=format_bytes(change.host_bytes))
    return say("plan.with_speed", options=options, tok_s=value_only(tok_s))


def _rates(budget: Budget, rows: Sequence[PlanRow]) -> list[Bandwidth | None]:
    """Return the bandwidths of the memories that others' rows are scaled to, and that remedies take of."""
    known = [(row, row.expected) for row in rows if row.fits is not False and row.expected]
    are_split = [row.is_split for row, expected in known if expected.basis == "published"]
    rates = [each.bandwidth for each in budget.devices if are_split]
    in_host = [*are_split, *(change.host_bytes for row in rows for change in row.changes)]
    return [*rates, budget.host.bandwidth] if budget.host is not None and any(in_host) else rates


def assumed_memory(budget: Budget, rows: Sequence[PlanRow]) -> str:
    """Return the memory that speeds and remedies assume, and the option for another; empty if none is assumed."""
    rate = next((each for each in _rates(budget, rows) if each and each.assumed), None)
    if rate is None:
        return ""
    values = {"memory": rate.assumed, "rate": format_bandwidth(rate.bytes_per_s)}
    return say("plan.memory_assumed", option=_memory_option(budget), **values)


def card_order(budget: Budget, setup: LlamaConfig | None) -> str:
    """Return in which order the options of a setup count unlike cards, if CUDA may count them in another.

    Its default, `CUDA_DEVICE_ORDER=FASTEST_FIRST`, guesses which is the fastest. Source: CUDA's programming guide.
    """
    cards = [short_device(each.name) for each in budget.devices if each.backend == "CUDA"]
    counts = setup is not None and (setup.tensor_split or setup.devices or setup.main_gpu is not None)
    if not counts or len(set(cards)) < 2:
        return ""
    return say("plan.card_order", cards=in_words(cards))


def _memory_option(budget: Budget) -> str:
    """Return the option that says which memory a machine has."""
    shared_bytes = sum(each.free_bytes for each in budget.devices if each.is_shared)
    if not budget.is_here:
        host_bytes = 0 if budget.host is None else budget.host.free_bytes
        is_given = shared_bytes or (budget.host is not None and budget.host.memory_source)
        size = exact_size(shared_bytes + host_bytes) if is_given else "64GiB"
        return f"--ram {size}@ddr5-5600x2"
    return "--bandwidth 90GB/s" if shared_bytes else "plan once with -ngl 0, which measures it"


def estimated_from(budget: Budget, rows: Sequence[PlanRow]) -> str:
    """Return what estimated speeds are from and, on this machine, what measures them; empty without any."""
    known = [row.expected for row in rows if row.fits is not False and row.expected]
    if not known and not all(each.bandwidth for each in budget.planned):
        return say("plan.no_bandwidth")
    sources = dict.fromkeys(each.source.partition(":")[0] for each in known if each.is_estimate)
    if not sources:
        return ""
    is_guess = budget.is_here and not all(each.is_timed for each in known)
    words = shlex.join((rows[0].model, next(iter(_fitting(rows)), rows[0]).quant))
    return say("plan.estimated_here" if is_guess else "plan.estimated", basis="; ".join(sources), words=words)


def _behind(plan: EnginePlan, rows: Sequence[PlanRow], headers: str) -> list[Part]:
    """Return sources, bounds, every buffer, and all that would help."""
    figures = (*(PLAN_FIGURES[key] for key in _BEHIND), *INTERVALS)
    of_rows = [part for row in rows for part in _memories_and_changes(row)]
    facts = Facts(_facts(plan, rows, headers))
    return [facts, Table(figures, rows, say("plan.behind")), *of_rows]


def _facts(plan: EnginePlan, rows: Sequence[PlanRow], headers: str) -> list[tuple[str, str]]:
    """Return the machine, the setup, and what sizes, losses and speeds are from."""
    return [
        *facts_of(MACHINE_FIGURES, plan.budget),
        *facts_of(_SETUP, rows[0]),
        (
            "prompt cache",
            "" if rows[0].setup is None else say("run.prompt_cache", cache=format_bytes(CACHE_RAM_BYTES)),
        ),
        *((name.replace("_", " "), text) for name, text in plan.sources.items()),
        ("repo", headers),
        *dict.fromkeys(("speed", row.expected.source) for row in rows if row.expected),
        ("loss", say("plan.losses") if any(row.loss for row in rows) else ""),
        *((row.quant, said(note)) for row in rows for note in row.notes),
    ]


def _memories_and_changes(row: PlanRow) -> list[Part]:
    """Return a quant's table of each memory, and of what of its own setup would make it fit."""
    memories = Table((*DEVICE_FIGURES, *_NEEDED), row.devices, say("plan.by_device", quant=row.quant))
    if _is_hopeless(row):
        return [memories]
    changes = changes_table(say("plan.changes", quant=row.quant, n_ctx=row.n_ctx), row.changes)
    return [memories, changes]


MACHINE = figures_type("Machine", MACHINE_FIGURES, "The memory budget.", base=Budget)
_DEVICE = figures_type("Device", (*DEVICE_FIGURES, *_NEEDED), "Memory taken on a device.", base=PlannedDevice)
ROW = figures_type(
    "Row",
    list(PLAN_FIGURES.values()),
    "The needs of one quant; null means unknown, never zero.",
    {
        "changes": list[CHANGE],  # type: ignore[valid-type]
        "devices": list[_DEVICE],  # type: ignore[valid-type]
        "notes": list[str],
    },
    PlanRow,
)
PLAN = Document(
    "plan",
    "plan MODEL [QUANT...]",
    "The needs of each quant, before any download.",
    figures_type(
        "Plan",
        (),
        "The needs of each quant, before any download.",
        {
            "model": str,
            "machine": MACHINE,
            "sources": dict[str, str],
            **dict.fromkeys(("repo", "commit", "listed_at"), str | None),
            "total_bytes": int | None,
            "rows": list[ROW],  # type: ignore[valid-type]
            "alternative": ROW | None,
        },
    ),
)


def machine_values(budget: Budget) -> dict[str, object]:
    """Return a budget for JSON, as `MACHINE`."""
    return figure_values(MACHINE_FIGURES, budget) | msgspec.structs.asdict(budget)


def row_values(row: PlanRow) -> dict[str, object]:
    """Return a quant for JSON, as `ROW`."""
    devices = [
        figure_values((*DEVICE_FIGURES, *_NEEDED), each) | msgspec.structs.asdict(each) for each in row.devices
    ]
    changes = [figure_values(CHANGE_FIGURES, each) for each in row.changes]
    own = {"changes": changes, "devices": devices, "notes": list(map(said, row.notes))}
    return figure_values(PLAN_FIGURES.values(), row) | msgspec.structs.asdict(row) | own


def plan_record(plan: EnginePlan) -> dict[str, object]:
    """Return a plan for JSON."""
    listing = plan.listing
    return {
        "model": plan.rows[0].model,
        "machine": machine_values(plan.budget),
        "sources": plan.sources,
        **{name: listing and getattr(listing, name) for name in ("repo", "commit", "listed_at", "total_bytes")},
        "rows": list(map(row_values, plan.rows)),
        "alternative": plan.alternative and row_values(plan.alternative),
    }
