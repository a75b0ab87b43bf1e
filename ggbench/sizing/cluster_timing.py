"""What each device of a cluster takes for a layer, timed with two twins of the model's layers that lie on it alone.

The slope between the twins is the cost of the layers; what is left is the output's and the way's, as in a forecast.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from ggbench.engines.contract import Source
from ggbench.engines.endings import Completed, Ending
from ggbench.engines.events import Steps
from ggbench.engines.llama.config import LlamaConfig, whole_steps
from ggbench.engines.llama.engine import LlamaEngine
from ggbench.engines.workloads.decode_at_depth import DecodeAtDepth
from ggbench.errors import EngineFailed
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.twin import twin_of
from ggbench.gguf_file.twin_writer import TwinGroup, group_twins
from ggbench.sizing.cluster_record import DeviceSpeed, Link
from ggbench.sizing.layer_sample import StepCost, step_cost, twin_layers
from ggbench.sizing.plan_record import DeviceMemory

N_DEPTH = 1025
"""Cells in use where the cost of the KV cache is timed."""
_ROUNDS, _N_GEN, _NEAR = 3, 8, 1


def cluster_twins(model: ModelFile) -> tuple[TwinGroup, tuple[StepCost, ...]]:
    """Plan two twins that differ in their number of layers: of a small model all layers and half of them."""
    layers = twin_layers(model, None)
    if len(layers) == 1:
        layers = (layers[0][::2], layers[0])
    files = [twin_of(model, model.name, None if len(each) == model.n_layer else each) for each in layers]
    return group_twins(files), tuple(step_cost(model, each) for each in layers)


def setup_alone(setup: LlamaConfig, devices: Sequence[DeviceMemory], index: int) -> LlamaConfig:
    """Return how to load a model on one of the devices; the index behind the last is main memory."""
    alone = replace(setup, rpc_servers=(), tensor_split=(), n_gpu_layers=-1, n_ctx=None, memory_limit_bytes=None)
    if index == len(devices):
        return replace(alone, n_gpu_layers=0)
    server = devices[index].server
    if not server:
        return replace(alone, main_gpu=sum(not each.server for each in devices[:index]))
    kept = [each for each in devices if each.server in ("", server)]
    split = tuple(float(each is devices[index]) for each in kept)
    return replace(alone, rpc_servers=(server,), tensor_split=split)


def time_device(
    engine: LlamaEngine,
    paths: Sequence[Path],
    costs: Sequence[StepCost],
    model: ModelFile,
    setup: LlamaConfig,
    device: tuple[str, str],
    link: Link | None,
    on_step: Callable[[str], None],
) -> DeviceSpeed:
    """Time both twins on one device, named with its server; ends the engine. Raises EngineFailed.

    `link` is what a probe measured of the way to the server; None for a device of this machine.
    """
    name, server = device
    near_ms, far_ms = [], 0.0
    try:
        for number, path in enumerate(paths):
            on_step(f"{server or 'this machine'} {name}: {costs[number].n_layer} layers")
            _completed(engine.open(Source(path), _with_n_ctx(setup)))
            near_ms.append(_step_ms(engine, _NEAR))
        far_ms = _step_ms(engine, N_DEPTH)
    finally:
        engine.close()
    return device_speed(device, model, costs, near_ms, far_ms, link)


def device_speed(
    device: tuple[str, str],
    model: ModelFile,
    costs: Sequence[StepCost],
    near_ms: Sequence[float],
    far_ms: float,
    link: Link | None,
) -> DeviceSpeed:
    """Return what the steps of two twins say of a device, the larger one's also at a depth of `N_DEPTH`.

    As the last device it has the output and sends the logits; before it sends the activations alone, whose way is that
    of the logits less what they are longer.
    """
    fewer, more = costs
    layer_ms = max(0.0, near_ms[1] - near_ms[0]) / (more.n_layer - fewer.n_layer)
    output_ms = max(0.0, near_ms[1] - more.n_layer * layer_ms)
    kv_ms = max(0.0, far_ms - near_ms[1]) / ((N_DEPTH - _NEAR) * more.n_layer)
    link_ms = 0.0
    if link is not None:
        per_byte = layer_ms * more.n_layer / more.layer_bytes
        all_layers = step_cost(model, range(model.n_layer - model.n_layer_nextn)).layer_bytes
        matrix_ms = per_byte * max(0.0, (model.active_weight_bytes or 0) - all_layers)
        longer = 4 * ((model.n_vocab or 0) - model.n_embd)
        rate = link.down_bytes_per_s
        logits_ms = longer / rate.p50 * 1e3 if rate is not None else 0.0
        link_ms = max(link.round_trip_ns.p50 / 1e6, output_ms - matrix_ms - logits_ms)
    name, server = device
    return DeviceSpeed(device=name, server=server, layer_ms=layer_ms, kv_ms=kv_ms, output_ms=output_ms, link_ms=link_ms)


def _with_n_ctx(setup: LlamaConfig) -> LlamaConfig:
    return replace(setup, n_ctx=whole_steps(N_DEPTH + _N_GEN + 2))


def _step_ms(engine: LlamaEngine, n_depth: int) -> float:
    """The median of all steps, the first round left out."""
    taken: list[int] = []
    for number in range(_ROUNDS + 1):
        for event in _completed(engine.run(DecodeAtDepth(n_depth, _N_GEN))):
            if isinstance(event, Steps) and number:
                taken += event.step_ns
    return statistics.median(taken) / 1e6


def _completed(events: Iterator[object]) -> list[object]:
    """All events of a request. Raises EngineFailed where it did not complete."""
    found = list(events)
    ending = found[-1]
    if isinstance(ending, Ending) and not isinstance(ending, Completed):
        raise EngineFailed(ending.reason, "see: ggbench cluster probe")
    return found
