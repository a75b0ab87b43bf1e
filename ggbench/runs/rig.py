"""What every run needs besides its model: an engine, a store, this machine's limits, and a way to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import msgspec
from msgspec import field

from ggbench.engines.contract import DEFAULT_TIMEOUT_S, Engine, EngineConfig, engine_module
from ggbench.engines.events import Allocated
from ggbench.machine.bandwidth import cached_bandwidth
from ggbench.machine.cpu import default_threads
from ggbench.machine.environment import environment
from ggbench.machine.gpus import find_cuda_gpu, gpu_bandwidth
from ggbench.machine.readings import MachineReader
from ggbench.machine.records import Environment, MachineReading
from ggbench.runs.recorder import READING_INTERVAL_S
from ggbench.runs.store.database import Store
from ggbench.stats.decode_timing import Bandwidth


class Rig(msgspec.Struct, frozen=True):
    """One for each command or screen; the tests make one with a fake engine and a store in a temporary folder."""

    launch: Callable[[EngineConfig, threading.Event], Engine]
    """Starts the engine of a setup, which ends when the event is set."""
    threads: int
    """For setups that do not say."""
    describe_environment: Callable[[Mapping[str, str]], Environment]
    """From the versions that an engine reports."""
    store: Store | None = None
    """None keeps nothing."""
    cpu_bandwidth: Bandwidth | None = None
    given_bandwidth: Bandwidth | None = None
    """A person's own figure; overrides what was measured or read."""
    cancel: threading.Event = field(default_factory=threading.Event)
    hold: threading.Event = field(default_factory=threading.Event)
    """While it is set, a decode waits between two steps; the engines that `launch` starts look at it."""
    read_machine: Callable[[], MachineReading] | None = None
    """Called during every run, from a thread of its own; None keeps no readings."""
    reading_interval_s: float = READING_INTERVAL_S

    def bandwidth_of(self, allocated: Allocated, env: Environment | None) -> Bandwidth | None:
        """The bandwidth that bounds a decode from these buffers; None where weights lie in memories of two speeds."""
        if self.given_bandwidth is not None:
            return self.given_bandwidth
        on_gpu = [buffers.device for buffers in allocated.buffers if buffers.weight_bytes and not buffers.is_host]
        if not on_gpu:
            return self.cpu_bandwidth
        if len(on_gpu) > 1 or not allocated.is_all_offloaded or env is None:
            return None
        gpu = find_cuda_gpu(env.gpus, on_gpu[0], dict(allocated.device_ids).get(on_gpu[0]))
        return None if gpu is None else gpu_bandwidth(gpu)


def make_rig(
    store: Store | None,
    *,
    given_bandwidth: Bandwidth | None = None,
    timeout_s: float | None = None,
    needs_bandwidth: bool = True,
) -> Rig:
    """A rig on this machine. Measures the bandwidth of main memory the first time, which takes a second or two."""
    threads = default_threads()
    hold = threading.Event()
    measures = needs_bandwidth and given_bandwidth is None

    def launch(setup: EngineConfig, cancel: threading.Event) -> Engine:
        seconds = DEFAULT_TIMEOUT_S if timeout_s is None else timeout_s
        return engine_module(setup.engine).launch(cancel, timeout_s=seconds, hold=hold)

    return Rig(
        launch=launch,
        threads=threads,
        describe_environment=environment,
        store=store,
        cpu_bandwidth=cached_bandwidth(threads) if measures else None,
        given_bandwidth=given_bandwidth,
        hold=hold,
        read_machine=MachineReader().read,
    )
