"""The best split of a model over several machines: what each takes is timed, what it holds is counted."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ggbench.engines.endings import EngineEnded
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.engine import LlamaEngine
from ggbench.errors import EngineFailed, Unsupported
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.twin import remove_left_twins, twin_folder, write_sparse
from ggbench.gguf_file.twin_writer import require_room
from ggbench.models.command_line import reproduce
from ggbench.models.targets import Target
from ggbench.paths import forecasts_dir
from ggbench.sizing.budget import main_memory_budget
from ggbench.sizing.cluster_record import ClusterPlan, ClusterSplit, DeviceSpeed, Link
from ggbench.sizing.cluster_split import MAIN_MEMORY, best_split
from ggbench.sizing.cluster_timing import cluster_twins, setup_alone, time_device
from ggbench.sizing.device_split import DeviceSplit
from ggbench.sizing.dry_allocator import DryAllocator, DryContext
from ggbench.sizing.plan import DEFAULT_N_CTX
from ggbench.sizing.plan_record import DeviceMemory


class Cluster(msgspec.Struct, frozen=True):
    """The machines, and how to use llama.cpp on them."""

    devices: tuple[DeviceMemory, ...]
    """In llama.cpp's order."""
    links: Mapping[str, Link]
    """By server."""
    launch: Callable[[], LlamaEngine]
    on_step: Callable[[str], None]
    """Takes what is being done."""


def plan_cluster(variant: Target, setup: LlamaConfig, cluster: Cluster) -> ClusterPlan:
    """Time twins on each device and on the CPU alone, then find the split; `setup.threads` have to be given.

    Nothing is timed of a model that no split holds. Raises Unsupported for a model whose steps cannot be counted,
    EngineFailed where a device does not compute.
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
    if best_split(untimed, n_layer, [n_layer] * len(untimed), n_ctx, room.overflow) is None:
        return ClusterPlan(model=variant.model, quant=variant.quant, n_ctx=n_ctx, speeds=(), best=None)
    speeds = _timed(model, setup, cluster)
    names = [each.machine for each in speeds]

    def best(left_out: str = "") -> ClusterSplit | None:
        capacities = [0 if name == left_out else n_layer for name in names]
        return best_split(speeds, n_layer, capacities, n_ctx, room.overflow)

    chosen = best()
    plan = ClusterPlan(
        model=variant.model,
        quant=variant.quant,
        n_ctx=n_ctx,
        speeds=speeds,
        best=chosen,
        without=tuple((name, best(name)) for name in dict.fromkeys(names)),
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
    """Return the setup that makes llama.cpp split a model so: the servers in use, shares in layers, the output one."""
    offloading = [
        (speed, count) for speed, count in zip(speeds, split.n_layers, strict=True) if speed.device != MAIN_MEMORY
    ]
    n_host = sum(split.n_layers) - sum(count for _, count in offloading)
    servers = tuple(dict.fromkeys(speed.server for speed, count in offloading if speed.server and count))
    # A server that is used brings all of its devices, and so does this machine.
    known = [(speed, count) for speed, count in offloading if speed.server in ("", *servers)]
    shares = [float(count) for _, count in known]
    if not any(shares):
        return replace(setup, rpc_servers=(), tensor_split=(), n_gpu_layers=0)
    shares[max(index for index, share in enumerate(shares) if share)] += 1  # the output counts as one more layer
    n_gpu_layers = -1 if not n_host else round(sum(shares))
    split_shares = tuple(shares) if len(shares) > 1 else ()
    return replace(setup, rpc_servers=servers, tensor_split=split_shares, n_gpu_layers=n_gpu_layers)


class _Room:
    """By how many layers a split exceeds what each device holds, with the context that was sized dry."""

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
        """Of each device, main memory last."""
        shares = [float(count) for count in n_layers[:-1]]
        if any(shares):
            shares[max(index for index, share in enumerate(shares) if share)] += 1
            asked = replace(self._setup, tensor_split=tuple(shares), n_gpu_layers=round(sum(shares)))
            held = DeviceSplit(self._model, asked, self._devices).planned(self._context)
            left = [each.left_bytes for each in held]
        else:
            left = [0] * len(shares)
        host_bytes = n_layers[-1] * self._layer_bytes if n_layers[-1] else 0
        left.append(self._main_memory_bytes - host_bytes)
        return [-(bytes_left // self._layer_bytes) if bytes_left < 0 else 0 for bytes_left in left]


def _dry_context(model: ModelFile, setup: LlamaConfig, cluster: Cluster) -> DryContext:
    """What a context takes over all devices; its compute buffers hardly depend on the split."""
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
    """Every device, main memory last, with twins that are removed after."""
    group, costs = cluster_twins(model)
    folder = forecasts_dir()
    folder.mkdir(parents=True, exist_ok=True)
    remove_left_twins(folder)
    require_room(
        folder, group.file_bytes, "the twins take", "free some space, set XDG_CACHE_HOME to a folder with room"
    )
    with twin_folder(folder) as own:
        cluster.on_step("writing twins of some layers")
        paths = [group.write(number, own) for number in range(len(costs))]
        return tuple(
            time_device(
                cluster.launch(),
                paths,
                costs,
                model,
                setup_alone(setup, cluster.devices, index),
                place,
                cluster.links.get(place[1]),
                cluster.on_step,
            )
            for index, place in enumerate(_places(cluster))
        )


def _places(cluster: Cluster) -> list[tuple[str, str]]:
    """Name and server of each device, main memory last."""
    return [*((each.device, each.server) for each in cluster.devices), (MAIN_MEMORY, "")]
