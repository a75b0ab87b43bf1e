"""The split over several devices that makes a step shortest, and what a step of any split takes.

A step goes through the devices one after the other: t(n) is the sum of what each takes for its layers, of the way to
every server but the last, and of the output with the way to the last device. Layers are taken as alike, so with the
devices chosen the fastest is filled first. Every choice of the fastest devices is tried, and the slower ones where
those do not hold the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

from ggbench.sizing.cluster_record import ClusterSplit, DeviceSpeed

MAIN_MEMORY = "CPU"
_MOST_CHOSEN = 8
"""Devices whose every choice is tried, 255 of them; slower ones are added one by one."""

Room = Callable[[Sequence[int]], Sequence[int]]
"""How many layers too many each device has in a split by layers; 0 or less is that it fits."""


def step_ms(speeds: Sequence[DeviceSpeed], n_layers: Sequence[int], n: float) -> float:
    """Return what a step at position n takes, with that many layers on each device, main memory last."""
    used = [index for index, count in enumerate(n_layers) if count]
    last = last_device(speeds, n_layers)
    links = sum(speeds[index].link_ms for index in used if index != last)
    return links + speeds[last].output_ms + sum(speeds[index].layers_ms(n_layers[index], n) for index in used)


def last_device(speeds: Sequence[DeviceSpeed], n_layers: Sequence[int]) -> int:
    """Return which device has the output: the last that is used, main memory only where no other is."""
    used = [index for index, count in enumerate(n_layers) if count]
    offloading = [index for index in used if speeds[index].device != MAIN_MEMORY]
    return (offloading or used)[-1]


def best_split(
    speeds: Sequence[DeviceSpeed], n_layer: int, capacities: Sequence[int], n_ctx: int, overflow: Room
) -> ClusterSplit | None:
    """Return the fastest split for a context that fills evenly up to `n_ctx`; None where none fits.

    `capacities` are layers that each device may hold at most; `overflow` looks closer.
    """
    usable = [index for index, capacity in enumerate(capacities) if capacity > 0]
    by_speed = sorted(usable, key=lambda index: speeds[index].layers_ms(1, n_ctx / 2))
    n_chosen = min(len(by_speed), _MOST_CHOSEN)
    choices = [used for n_used in range(1, n_chosen + 1) for used in combinations(by_speed[:n_chosen], n_used)]
    choices += [tuple(by_speed[:n_used]) for n_used in range(n_chosen + 1, len(by_speed) + 1)]
    splits = (_filled(used, len(speeds), n_layer, capacities, overflow) for used in choices)
    found = [split for split in splits if split is not None]
    if not found:
        return None
    best = min(found, key=lambda split: step_ms(speeds, split, n_ctx / 2))
    return ClusterSplit(n_layers=best, b_ms=step_ms(speeds, best, 1), at_n_ctx_ms=step_ms(speeds, best, n_ctx))


def _filled(
    used: Sequence[int], n_devices: int, n_layer: int, capacities: Sequence[int], overflow: Room
) -> tuple[int, ...] | None:
    """All layers on these devices, each with one at least, the first filled first; None where they do not fit."""
    room = [min(capacities[index], n_layer) for index in used]
    while min(room) >= 1 and sum(room) >= n_layer and len(used) <= n_layer:
        split, left = [0] * n_devices, n_layer - len(used)
        for index, most in zip(used, room, strict=True):
            taken = min(most - 1, left)
            split[index] = 1 + taken
            left -= taken
        too_many = overflow(split)
        if all(too_many[index] <= 0 for index in used):
            return tuple(split)
        room = [
            split[index] - too_many[index] if too_many[index] > 0 else most
            for index, most in zip(used, room, strict=True)
        ]
    return None
