"""Find the best split of a model over several machines: time each device, and count the layers that fit on it.

A step passes through the devices in turn: t(n) is the sum of every device's layers, the round trips to all servers but
the last, and the output with the round trip to the last. A device is timed with two twins of a few layers: the slope is
the cost of a layer, the intercept that of the output and the trip. Layers are assumed equal, so the fastest chosen
device is filled first. The k fastest devices are tried for every k; slower ones are added if the model does not fit on
these.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ggbench.engines.contract import DecodeAtDepth, Engine, Source
from ggbench.engines.endings import Completed, Ending, EngineEnded
from ggbench.engines.events import Steps
from ggbench.engines.llama.config import LlamaConfig, whole_steps
from ggbench.engines.llama.rpc_client import Link
from ggbench.errors import EngineFailed, Unsupported
from ggbench.fields import reproduce
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.twin import require_twin_room, twin_folder, twin_of, write_sparse
from ggbench.gguf_file.twin_writer import TwinGroup, group_twins
from ggbench.models.targets import Target
from ggbench.sizing.cluster import ClusterPlan, ClusterSplit, DeviceSpeed
from ggbench.sizing.dry_allocator import DryAllocator, DryContext
from ggbench.sizing.layer_sample import StepCost, model_cost, step_cost, twin_layers
from ggbench.sizing.placement import Placement
from ggbench.sizing.plan import DEFAULT_N_CTX
from ggbench.sizing.plan_record import DeviceMemory
from ggbench.sizing.search_budget import main_memory_budget


class Cluster(msgspec.Struct, frozen=True):
    """The machines, and the llama.cpp setup to use on them."""

    devices: tuple[DeviceMemory, ...]
    """In llama.cpp's order."""
    links: Mapping[str, Link]
    launch: Callable[[], Engine]
    on_step: Callable[[str], None]
    """Called with a description of each step."""


def plan_cluster(variant: Target, setup: LlamaConfig, cluster: Cluster) -> ClusterPlan:
    """Time twins on each device and on the CPU alone, then find the split; `setup.threads` must be set.

    Nothing is timed if no split holds the model. Raises Unsupported if the bytes of a step are unknown, EngineFailed if
    a device cannot compute.
    """
    if variant.file is None:
        raise Unsupported(variant.reason, "name another quant")
    model, devices = variant.file, cluster.devices
    n_ctx = setup.n_ctx or min(DEFAULT_N_CTX, model.n_ctx_train or DEFAULT_N_CTX)
    context = _dry_context(model, replace(setup, n_ctx=n_ctx), cluster)
    room = _Room(model, setup, devices, context)
    n_layer = model.n_layer
    untimed = [
        DeviceSpeed(device=name, server=server, layer_ms=0, kv_ms=0, output_ms=0) for name, server in _places(cluster)
    ]
    if best_split(untimed, n_layer, n_ctx, room.overflow) is None:
        return ClusterPlan(model=variant.model, quant=variant.quant, n_ctx=n_ctx, speeds=(), best=None)
    speeds = _timed(model, setup, cluster)
    chosen = best_split(speeds, n_layer, n_ctx, room.overflow)
    plan = ClusterPlan(
        model=variant.model,
        quant=variant.quant,
        n_ctx=n_ctx,
        speeds=speeds,
        best=chosen,
        without=tuple(
            (name, best_split(speeds, n_layer, n_ctx, room.overflow, left_out=name))
            for name in dict.fromkeys(each.machine for each in speeds)
        ),
    )
    if chosen is None:
        return plan
    asked = split_setup(replace(setup, n_ctx=n_ctx), speeds, chosen)
    return replace(
        plan,
        rpc_servers=asked.rpc_servers,
        tensor_split=asked.tensor_split,
        n_gpu_layers=asked.n_gpu_layers,
        command=reproduce("decode", (variant.model, variant.selector or variant.quant), asked, {}),
    )


def split_setup(setup: LlamaConfig, speeds: Sequence[DeviceSpeed], split: ClusterSplit) -> LlamaConfig:
    """Return the setup that makes llama.cpp split a model this way: shares are layers, and the output counts as one."""
    offloading = [
        (speed, count) for speed, count in zip(speeds, split.n_layers, strict=True) if speed.device != MAIN_MEMORY
    ]
    n_host = sum(split.n_layers) - sum(count for _, count in offloading)
    servers = tuple(dict.fromkeys(speed.server for speed, count in offloading if speed.server and count))
    # llama.cpp uses all devices of a server in use, and of this machine
    known = [(speed, count) for speed, count in offloading if speed.server in ("", *servers)]
    shares = [float(count) for _, count in known]
    if not any(shares):
        return replace(setup, rpc_servers=(), tensor_split=(), n_gpu_layers=0)
    shares[max(index for index, share in enumerate(shares) if share)] += 1  # the output counts as one more layer
    n_gpu_layers = -1 if not n_host else round(sum(shares))
    split_shares = tuple(shares) if len(shares) > 1 else ()
    return replace(setup, rpc_servers=servers, tensor_split=split_shares, n_gpu_layers=n_gpu_layers)


class _Room:
    """Room for layers on the devices, given a context that was sized dry."""

    def __init__(
        self, model: ModelFile, setup: LlamaConfig, devices: Sequence[DeviceMemory], context: DryContext
    ) -> None:
        self._model, self._setup, self._devices, self._context = model, setup, devices, context
        n_layer = max(1, model.n_layer)
        self._layer_bytes = max(1, ((model.weight_bytes or 0) + context.cache_bytes) // n_layer)
        self._main_memory_bytes = main_memory_budget(
            limit_bytes=setup.memory_limit_bytes, reserve_bytes=None
        ).planned.usable_bytes

    def overflow(self, n_layers: Sequence[int]) -> list[int]:
        """Return by how many layers a split exceeds each device's room, main memory last."""
        shares = [float(count) for count in n_layers[:-1]]
        if any(shares):
            shares[max(index for index, share in enumerate(shares) if share)] += 1
            asked = replace(self._setup, tensor_split=tuple(shares), n_gpu_layers=round(sum(shares)))
            held = Placement(self._model, asked, on_gpu=True, devices=self._devices).planned(self._context)
            left = [each.left_bytes or 0 for each in held]
        else:
            left = [0] * len(shares)
        host_bytes = n_layers[-1] * self._layer_bytes if n_layers[-1] else 0
        left.append(self._main_memory_bytes - host_bytes)
        return [-(bytes_left // self._layer_bytes) if bytes_left < 0 else 0 for bytes_left in left]


def _dry_context(model: ModelFile, setup: LlamaConfig, cluster: Cluster) -> DryContext:
    """Return the memory of a context over all devices; its compute buffers hardly depend on the split."""
    cluster.on_step("llama.cpp's allocator, run dry")
    with (
        tempfile.TemporaryDirectory(prefix="ggbench-") as folder,
        DryAllocator(cluster.launch(), setup, cluster.devices) as dry,
    ):
        try:
            dry.load(model, write_sparse(model, Path(folder)))
            return dry.context(setup.n_ctx or DEFAULT_N_CTX)
        except EngineEnded as end:
            raise EngineFailed(end.ending.reason, "see: ggbench cluster probe") from None


def _timed(model: ModelFile, setup: LlamaConfig, cluster: Cluster) -> tuple[DeviceSpeed, ...]:
    """Time every device, main memory last, with temporary twins."""
    group, costs = cluster_twins(model)
    with twin_folder(require_twin_room(group.file_bytes)) as own:
        cluster.on_step("writing twins of a few layers")
        paths = [group.write(number, own) for number in range(len(costs))]
        return tuple(
            _time_device(cluster, place, paths, costs, model, setup_alone(setup, cluster.devices, index))
            for index, place in enumerate(_places(cluster))
        )


def _places(cluster: Cluster) -> list[tuple[str, str]]:
    """Return the name and server of each device, main memory last."""
    return [*((each.device, each.server) for each in cluster.devices), (MAIN_MEMORY, "")]


MAIN_MEMORY = "CPU"
_MOST_CHOSEN = 8
"""Try every subset of this many devices (255 subsets); add slower ones one by one."""

Room = Callable[[Sequence[int]], Sequence[int]]
"""Returns by how many layers a split exceeds each device; 0 or less if it fits."""


def step_ms(speeds: Sequence[DeviceSpeed], n_layers: Sequence[int], n: float) -> float:
    """Return the time of a step at position n for a split into `n_layers`, main memory last."""
    used = [index for index, count in enumerate(n_layers) if count]
    # the output is on the last device in use, in main memory only if there is no other
    last = ([index for index in used if speeds[index].device != MAIN_MEMORY] or used)[-1]
    links = sum(speeds[index].link_ms for index in used if index != last)
    return links + speeds[last].output_ms + sum(speeds[index].layers_ms(n_layers[index], n) for index in used)


def best_split(
    speeds: Sequence[DeviceSpeed], n_layer: int, n_ctx: int, overflow: Room, *, left_out: str = ""
) -> ClusterSplit | None:
    """Return the fastest split for a context that fills evenly up to `n_ctx`; None if none fits.

    The devices of the machine `left_out` get no layers.
    """
    usable = [index for index, speed in enumerate(speeds) if speed.machine != left_out]
    by_speed = sorted(usable, key=lambda index: speeds[index].layers_ms(1, n_ctx / 2))
    n_chosen = min(len(by_speed), _MOST_CHOSEN)
    choices = [used for n_used in range(1, n_chosen + 1) for used in combinations(by_speed[:n_chosen], n_used)]
    choices += [tuple(by_speed[:n_used]) for n_used in range(n_chosen + 1, len(by_speed) + 1)]
    splits = (_filled(used, len(speeds), n_layer, overflow) for used in choices)
    found = [split for split in splits if split is not None]
    if not found:
        return None
    best = min(found, key=lambda split: step_ms(speeds, split, n_ctx / 2))
    return ClusterSplit(n_layers=best, b_ms=step_ms(speeds, best, 1), at_n_ctx_ms=step_ms(speeds, best, n_ctx))


def _filled(used: Sequence[int], n_devices: int, n_layer: int, overflow: Room) -> tuple[int, ...] | None:
    """Put all layers on these devices, at least one on each, filling them in order; None if they do not fit."""
    room = [n_layer] * len(used)
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


N_DEPTH = 1025
"""Cells in use when the cost of the KV cache is timed."""
_ROUNDS, _N_GEN, _NEAR = 3, 8, 1


def cluster_twins(model: ModelFile) -> tuple[TwinGroup, tuple[StepCost, ...]]:
    """Plan two twins with different numbers of layers: for a small model all layers and half of them."""
    layers = twin_layers(model, None)
    if len(layers) == 1:
        layers = (layers[0][::2], layers[0])
    files = [twin_of(model, model.name, None if len(each) == model.n_layer else each) for each in layers]
    return group_twins(files), tuple(step_cost(model, each) for each in layers)


def setup_alone(setup: LlamaConfig, devices: Sequence[DeviceMemory], index: int) -> LlamaConfig:
    """Return how to load a model on one of the devices; the index after the last is main memory."""
    alone = replace(setup, rpc_servers=(), tensor_split=(), n_gpu_layers=-1, n_ctx=None, memory_limit_bytes=None)
    if index == len(devices):
        return replace(alone, n_gpu_layers=0)
    server = devices[index].server
    if not server:
        return replace(alone, main_gpu=sum(not each.server for each in devices[:index]))
    kept = [each for each in devices if each.server in ("", server)]
    split = tuple(float(each is devices[index]) for each in kept)
    return replace(alone, rpc_servers=(server,), tensor_split=split)


def _time_device(
    cluster: Cluster,
    device: tuple[str, str],
    paths: Sequence[Path],
    costs: Sequence[StepCost],
    model: ModelFile,
    setup: LlamaConfig,
) -> DeviceSpeed:
    """Time both twins on one device, given by name and server. Raises EngineFailed.

    The last device has the output and sends the logits; others send only the activations, whose transfer is shorter
    than that of the logits by the time of the additional bytes.
    """
    name, server = device
    engine, near_ms, link = cluster.launch(), list[float](), cluster.links.get(server)
    setup = replace(setup, n_ctx=whole_steps(N_DEPTH + _N_GEN + 2))
    try:
        for number, path in enumerate(paths):
            cluster.on_step(f"{server or 'this machine'} {name}: {costs[number].n_layer} layers")
            _completed(engine.open(Source(path), setup))
            near_ms.append(_step_ms(engine, _NEAR))
        far_ms = _step_ms(engine, N_DEPTH)
    finally:
        engine.close()
    fewer, more = costs
    layer_ms = max(0.0, near_ms[1] - near_ms[0]) / (more.n_layer - fewer.n_layer)
    output_ms = max(0.0, near_ms[1] - more.n_layer * layer_ms)
    kv_ms = max(0.0, far_ms - near_ms[1]) / ((N_DEPTH - _NEAR) * more.n_layer)
    link_ms = 0.0
    if link is not None:
        per_byte = layer_ms * more.n_layer / more.layer_bytes
        all_layers = model_cost(model).layer_bytes
        matrix_ms = per_byte * max(0.0, (model.active_weight_bytes or 0) - all_layers)
        longer = 4 * ((model.n_vocab or 0) - model.n_embd)
        rate = link.down_bytes_per_s
        logits_ms = longer / rate.p50 * 1e3 if rate is not None else 0.0
        link_ms = max(link.round_trip_ns.p50 / 1e6, output_ms - matrix_ms - logits_ms)
    return DeviceSpeed(device=name, server=server, layer_ms=layer_ms, kv_ms=kv_ms, output_ms=output_ms, link_ms=link_ms)


def _step_ms(engine: Engine, n_depth: int) -> float:
    """Return the median of all steps except those of the first round."""
    taken: list[int] = []
    for number in range(_ROUNDS + 1):
        for event in _completed(engine.run(DecodeAtDepth(n_depth, _N_GEN))):
            if isinstance(event, Steps) and number:
                taken += event.step_ns
    return statistics.median(taken) / 1e6


def _completed(events: Iterator[object]) -> list[object]:
    found = list(events)
    ending = found[-1]
    if isinstance(ending, Ending) and not isinstance(ending, Completed):
        raise EngineFailed(ending.reason, "see: ggbench cluster probe")
    return found
