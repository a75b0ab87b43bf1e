"""The split of a model over devices: llama.cpp's own for given shares, and the fastest."""

import pytest

from ggbench.engines.llama.config import LlamaConfig
from ggbench.sizing.cluster import DeviceSpeed
from ggbench.sizing.cluster_plan import Room, best_split, split_setup, step_ms
from ggbench.sizing.plan_record import DeviceMemory
from ggbench.sizing.theory.offload import HOST, device_layers

DEVICES = DeviceMemory("RPC0[a:1]", "a:1", 1 << 30), DeviceMemory("RPC0[c:1]", "c:1", 1 << 30)


def speed(
    device: str, layer_ms: float, server: str = "", *, link_ms: float = 0.0, output_ms: float = 0.0
) -> DeviceSpeed:
    return DeviceSpeed(device=device, server=server, layer_ms=layer_ms, kv_ms=0.0, output_ms=output_ms, link_ms=link_ms)


def room(*capacities: int) -> Room:
    """Return a check of splits for devices that hold this many layers."""
    return lambda split: [count - capacity for count, capacity in zip(split, capacities, strict=True)]


@pytest.mark.parametrize(
    ("shares", "n_gpu_layers", "devices"),
    [
        ((1, 1), -1, (0, 0, 0, 1, 1)), ((1, 3), -1, (0, 0, 1, 1, 1)), ((2, 3), -1, (0, 0, 1, 1, 1)),
        ((0, 1), -1, (1, 1, 1, 1, 1)), ((1, 1), 2, (HOST, HOST, HOST, 0, 1)), ((1, 1), 0, (HOST,) * 5),
    ],
)  # fmt: skip
def test_layers_follow_the_shares(shares: tuple[float, ...], n_gpu_layers: int, devices: tuple[int, ...]) -> None:
    setup = LlamaConfig(tensor_split=shares, n_gpu_layers=n_gpu_layers)
    assert device_layers(4, setup, DEVICES) == devices


@pytest.mark.parametrize(("link_ms", "n_layers"), [(0.1, (10, 0)), (9.0, (10, 0)), (11.0, (0, 10))])
def test_a_machine_is_left_out_as_soon_as_its_link_costs_more_than_it_saves(
    link_ms: float, n_layers: tuple[int, ...]
) -> None:
    speeds = [speed("RPC0[a:1]", 1.0, "a:1", link_ms=link_ms, output_ms=link_ms), speed("CPU", 2.0)]
    best = best_split(speeds, 10, 512, room(10, 10))
    assert best is not None
    assert best.n_layers == n_layers


def test_the_fastest_is_filled_first_and_what_it_does_not_hold_goes_to_the_next() -> None:
    speeds = [
        speed("RPC0[a:1]", 1.0, "a:1", link_ms=0.5, output_ms=2.0),
        speed("RPC0[b:1]", 4.0, "b:1", link_ms=0.7, output_ms=3.0),
        speed("CPU", 2.0, output_ms=1.0),
    ]
    best = best_split(speeds, 10, 512, room(6, 10, 10))
    assert best is not None
    assert best.n_layers == (6, 0, 4)
    assert best.b_ms == step_ms(speeds, (6, 0, 4), 1) == 6 * 1.0 + 4 * 2.0 + 2.0
    assert step_ms(speeds, (6, 4, 0), 1) == 6 * 1.0 + 0.5 + 4 * 4.0 + 3.0


def test_what_the_memory_does_not_hold_has_no_split() -> None:
    speeds = [speed("RPC0[a:1]", 1.0, "a:1"), speed("CPU", 2.0)]
    assert best_split(speeds, 10, 512, room(4, 5)) is None
    closer = best_split(speeds, 10, 512, room(4, 6))
    assert closer is not None
    assert closer.n_layers == (4, 6)


def test_a_split_becomes_shares_in_layers_with_the_output_on_the_last_device() -> None:
    speeds = [*(speed(f"RPC0[{server}]", 1.0, server) for server in ("a:1", "b:1", "c:1")), speed("CPU", 1.0)]
    best = best_split(speeds, 10, 512, room(3, 0, 4, 3))
    assert best is not None
    setup = split_setup(LlamaConfig(rpc_servers=("a:1", "b:1", "c:1")), speeds, best)
    assert (setup.rpc_servers, setup.tensor_split, setup.n_gpu_layers) == (("a:1", "c:1"), (3.0, 5.0), 8)
    assert device_layers(10, setup, DEVICES) == (*[HOST] * 3, *[0] * 3, *[1] * 5)
