"""Find a larger physical batch for a pick with experts in main memory, since each batch of a prompt copies them again.

llama.cpp computes batches of 32 tokens or more on the GPU, and copies the experts used to it for each
(`ggml_backend_cuda_device_offload_op`, `ggml_backend_sched_compute_splits`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from msgspec.structs import replace

from ggbench.decisions.known_speeds import KnownSpeeds
from ggbench.decisions.pick.needs import LITTLE_BYTES, Needs
from ggbench.decisions.pick.record import Candidate, LargerBatch
from ggbench.decisions.pick.turn import known_turn
from ggbench.engines.llama.config import LlamaConfig
from ggbench.models.targets import Target
from ggbench.sizing.dry_allocator import DryAllocator
from ggbench.sizing.plan import PlanRequest, plan_variant
from ggbench.sizing.plan_record import KvCacheTypes
from ggbench.stats.speed_estimate import SpeedEstimate

_LARGER_UBATCHES = (2048, 1024)
_MOST_MOVED = 0.25
"""Share of the layers whose experts may move to main memory to make room, as answers become slower."""


def larger_batch(
    own: Candidate, variant: Target, needs: Needs, request: PlanRequest, allocator: DryAllocator, speeds: KnownSpeeds
) -> LargerBatch | None:
    """Return the largest physical batch that speeds up prompts; None without experts in main memory, or without a gain.

    The experts of more layers move to main memory if that is what makes room for the batch and for other programs.
    """
    n_slots, file, left_bytes = needs.n_slots, variant.file, own.row.left_bytes
    usual = speeds.of(file, own.setup, n_slots) if own.keeps_experts else None
    if file is None or usual is None or left_bytes is None:
        return None
    n_read = needs.workload.depth_in(own.n_ctx // n_slots) + needs.workload.n_prompt

    def room_bytes(setup: LlamaConfig) -> int:
        cache = KvCacheTypes(*own.cache, setup.flash_attn)
        return next(iter(plan_variant(variant, replace(request, setup=setup), allocator, (cache,)))).left_bytes or 0

    for n_ubatch in _LARGER_UBATCHES:
        if own.setup.n_ubatch >= min(n_ubatch, n_read):
            continue
        setup, room = _with_room(own, n_ubatch, file.n_layer, room_bytes)
        known = speeds.of(file, setup, n_slots)
        turn = None if known is None else known_turn(known, needs.workload, own.n_ctx // n_slots)
        if room < LITTLE_BYTES or known is None or turn is None:
            continue
        n_prompt, after_s, before_s = _prompt_s(known, usual)
        if after_s < before_s:
            more_bytes, n_cpu_moe = left_bytes - room, setup.n_cpu_moe
            return LargerBatch(
                n_ubatch, setup.n_batch, n_prompt, after_s, before_s, more_bytes, n_cpu_moe, turn.tok_s.value
            )
    return None


def _prompt_s(one: SpeedEstimate, other: SpeedEstimate) -> tuple[int, float, float]:
    """Return the length of the longest prompt that both know, and its seconds in each; 0 without any."""
    mine, theirs = dict(one.prefill_ms), dict(other.prefill_ms)
    n_prompt = max(mine.keys() & theirs.keys(), default=0)
    if not n_prompt or one.basis != other.basis:
        return 0, 0.0, 0.0
    return n_prompt, mine[n_prompt].value / 1e3, theirs[n_prompt].value / 1e3


def _with_room(
    own: Candidate, n_ubatch: int, n_layer: int, room_bytes: Callable[[LlamaConfig], int]
) -> tuple[LlamaConfig, int]:
    """Return the setup with this physical batch, as many experts in main memory as leave room, and the bytes left."""
    setup = replace(own.setup, n_ubatch=n_ubatch, n_batch=max(own.setup.n_batch, n_ubatch))
    room, most = room_bytes(setup), min(n_layer, own.setup.n_cpu_moe + round(_MOST_MOVED * n_layer))
    while room < LITTLE_BYTES and 0 < setup.n_cpu_moe < most:
        n_more = math.ceil((LITTLE_BYTES - room) / ((own.host_bytes or 0) / own.setup.n_cpu_moe))
        setup = replace(setup, n_cpu_moe=min(most, setup.n_cpu_moe + n_more))
        room = room_bytes(setup)
    return setup, room
