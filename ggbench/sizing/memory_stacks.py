"""Break each memory of a plan down by part, counting each byte once."""

from __future__ import annotations

from collections.abc import Iterable

from ggbench.sizing.dry_allocator import DryContext
from ggbench.sizing.placement import Placement
from ggbench.sizing.plan_record import (
    HOST_DEVICE,
    Budget,
    MemoryPart,
    MemoryPartName,
    MemoryStack,
)
from ggbench.sizing.theory.offload import HOST

Sized = tuple[MemoryPartName, int]


def memory_stacks(placement: Placement, context: DryContext, budget: Budget) -> tuple[MemoryStack, ...]:
    """Return a stack for each device, main memory last; one for a plan without a GPU, or where both share a memory."""
    sized = []
    for (place, memory), planned in zip(placement.memories, placement.planned(context), strict=True):
        output_bytes = context.output_bytes if place == HOST else 0
        process_bytes = 0 if placement.devices else budget.process_bytes
        parts: list[Sized] = [
            ("weights", planned.weight_bytes),
            ("projector", memory.projector_bytes),
            ("draft", planned.draft_bytes),
            *placement.cache_kinds(place, context).items(),
            ("compute", planned.compute_bytes - output_bytes),
            ("output", output_bytes),
            ("prompt_cache", memory.prompt_cache_bytes),
            ("process", process_bytes + placement.unreserved_bytes(context)),
            ("reserve", memory.reserve_bytes - process_bytes),
        ]
        sized.append((planned.device, planned.memory_bytes, parts))
    if placement.is_in_one_memory:
        sized[0][-1].extend(sized.pop()[-1])
    return tuple(_stack(*each) for each in sized)


def stack_of(budget: Budget, weight_bytes: int, kv_bytes: int, compute_bytes: int = 0) -> MemoryStack:
    """Return the stack of an engine without a dry allocator, over all of a budget's memory."""
    device = ", ".join(device.device for device in budget.devices) or HOST_DEVICE
    sizes: list[Sized] = [("weights", weight_bytes), ("kv", kv_bytes), ("compute", compute_bytes)]
    kept: list[Sized] = [("process", budget.process_bytes), ("reserve", budget.kept_bytes)]
    return _stack(device, budget.memory_bytes, [*sizes, *kept])


def _stack(device: str, memory_bytes: int | None, parts: Iterable[Sized]) -> MemoryStack:
    """Return the stack with what is left; a known memory that is too small has a part that is missing."""
    sizes: dict[MemoryPartName, int] = {}
    for name, n_bytes in parts:
        sizes[name] = sizes.get(name, 0) + n_bytes
    taken = [MemoryPart(part, n_bytes) for part, n_bytes in sizes.items() if n_bytes]
    if memory_bytes is not None:
        left_bytes = memory_bytes - sum(part.n_bytes for part in taken)
        if left_bytes:
            taken.append(MemoryPart("free" if left_bytes > 0 else "missing", abs(left_bytes)))
    return MemoryStack(device, memory_bytes, tuple(taken))
