"""The facts above a plan: the machine's memory, what is set aside of it, and the setup that is planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.defaults import CACHE_RAM_BYTES
from ggbench.show import UNKNOWN
from ggbench.show.tables import Facts
from ggbench.show.text import drafting_text, on_off, slots_text, swa_text
from ggbench.sizing.plan_record import Budget, DeviceMemory, PlanRow
from ggbench.sizing.projectors import Projector
from ggbench.text import in_words
from ggbench.units import format_bandwidth, format_bytes, format_count, format_number


def plan_facts(
    budget: Budget,
    config: LlamaConfig | None,
    sources: Mapping[str, str],
    rows: Sequence[PlanRow],
    shared: Sequence[str],
) -> Facts:
    return [
        ("memory", f"{_memory_text(budget)} ({budget.memory_source})"),
        ("reserve", f"{format_bytes(budget.reserve_bytes)} ({budget.reserve_source}; --reserve)"),
        ("projector", _projector_text(budget.projector)),
        ("draft", draft_text(budget, rows)),
        ("prompt cache", _prompt_cache_text(budget, config, rows)),
        ("budget", format_bytes(budget.usable_bytes)),
        ("bandwidth", _bandwidth_text(budget)),
        ("main memory", main_memory_text(budget.host) if any(row.is_split for row in rows) else ""),
        ("planned at", _setting(config, rows)),
        *((name.replace("_", " "), text) for name, text in sources.items()),
        *(("note", note) for note in shared),
    ]


def _projector_text(projector: Projector | None) -> str:
    """Return the memory of a projector; empty without one."""
    if projector is None:
        return ""
    n_bytes = f"{format_bytes(projector.weight_bytes)} (--mmproj"
    if not projector.compute_bytes:
        return f"{n_bytes}, without its compute buffer)"
    buffer = format_bytes(projector.compute_bytes)
    return f"{n_bytes}) and at most {buffer} to compute llama.cpp's warm-up image; larger ones take more"


def draft_text(budget: Budget, rows: Sequence[PlanRow]) -> str:
    """Return what drafts, and its size; empty if nothing does."""
    sizes = [row.draft_bytes for row in rows if row.draft_bytes is not None]
    if not sizes:
        return ""
    name = "" if budget.draft is None else f"{budget.draft.model} {budget.draft.quant}"
    return f"{drafting_text(max(sizes), name)}; speeds do not include drafting"


def _prompt_cache_text(budget: Budget, config: LlamaConfig | None, rows: Sequence[PlanRow]) -> str:
    """Return what llama-server's prompt cache and checkpoints take of main memory; empty for another engine.

    They are not counted by default, since they start empty and a plan answers whether the model loads.
    """
    if config is None:
        return ""
    if budget.cache_ram_bytes is None:
        return f"not counted; llama-server lets it grow to {format_bytes(CACHE_RAM_BYTES)} of main memory (--cache-ram)"
    text = f"{format_bytes(budget.cache_ram_bytes)} of main memory (--cache-ram)"
    each_bytes = max((row.checkpoint_bytes or 0 for row in rows), default=0)
    n_checkpoints = budget.n_checkpoints * config.n_seq_max
    if each_bytes and n_checkpoints:
        whole = format_bytes(n_checkpoints * each_bytes)
        text += f"; {n_checkpoints} checkpoints of {format_bytes(each_bytes)} take {whole} (--ctx-checkpoints)"
    return text


def _memory_text(budget: Budget) -> str:
    """Return `24.0 GiB`, for several GPUs `28.0 GiB: 12.0 and 16.0 GiB`."""
    sizes = [format_bytes(device.free_bytes) for device in budget.devices]
    whole = format_bytes(budget.memory_bytes)
    return whole if len(sizes) < 2 else f"{whole}: {in_words(sizes)}"


def _bandwidth_text(budget: Budget) -> str:
    of_devices = dict.fromkeys([*(device.bandwidth for device in budget.devices), budget.bandwidth])
    texts = [f"{format_bandwidth(each.bytes_per_s)} ({each.source})" for each in of_devices if each]
    return ", ".join(texts) or "not known"


def main_memory_text(memory: DeviceMemory | None) -> str:
    """Return `64.0 GiB, 4.00 GiB kept free, 50.0 GB/s (given)` of the main memory beside GPUs; empty if unknown."""
    if memory is None:
        return ""
    rate = memory.bandwidth
    speed = f", {format_bandwidth(rate.bytes_per_s)} ({rate.source})" if rate else ""
    return f"{format_bytes(memory.free_bytes)}, {format_bytes(memory.reserve_bytes)} kept free{speed}"


def _setting(config: LlamaConfig | None, rows: Sequence[PlanRow]) -> str:
    lengths = sorted({row.n_ctx for row in rows if row.n_ctx is not None})
    n_ctx = f"n_ctx {' and '.join(map(format_count, lengths))}" if lengths else ""
    if config is None:
        cache = " and ".join(dict.fromkeys(row.type_k for row in rows))
        return ", ".join(filter(None, (n_ctx, f"KV cache {cache}")))
    slots = slots_text(config, lengths[-1]) if lengths else ""
    cache = config.type_k if config.type_k == config.type_v else f"K {config.type_k}, V {config.type_v}"
    n_ubatch = min(
        config.n_ubatch, config.n_batch, *lengths[-1:]
    )  # llama.cpp clamps it to n_batch, and that to n_ctx
    windows = dict.fromkeys(swa_text(row.swa_cells, row.n_ctx) for row in rows)
    flash = " or ".join(dict.fromkeys(on_off(row.flash_attn) for row in rows if row.flash_attn is not None))
    parts = (f"{n_ctx}{slots}", f"KV cache {cache}", *windows, f"n_ubatch {format_count(n_ubatch)}")
    return ", ".join(filter(None, (*parts, f"flash attention {flash}" if flash else "")))


def users_text(rows: Sequence[PlanRow]) -> str:
    return f"{max((row.setup.n_seq_max for row in rows if row.setup), default=1)} users"


def together_text(row: PlanRow) -> str:
    """Return `8.30 / 33.2`, the speeds of each user and of all; after a `~` if expected, else the bound."""
    speed, n_slots = row.together, row.setup.n_seq_max if row.setup else 1
    if speed is None:
        return UNKNOWN
    mark, tok_s = ("", speed.tok_s) if speed.tok_s_estimate is None else ("~", speed.tok_s_estimate)
    return f"{mark}{format_number(tok_s / n_slots)} / {mark}{format_number(tok_s)}"
