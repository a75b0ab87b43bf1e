"""Times steps on a line, B 20 ms and W 100 tokens/ms, on a device that says what it holds."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Annotated, ClassVar

import msgspec

from ggbench.engines.contract import Decode, Engine, EngineConfig, Prefill, Source, Workload
from ggbench.engines.endings import Completed, Ending
from ggbench.engines.events import Allocated, DeviceBuffers, Event, MemoryKind, Opened, PromptRead, Ready, Steps
from ggbench.fields import COUNT, Option


class PlantedConfig(EngineConfig, msgspec.Struct, frozen=True):
    engine: ClassVar[str] = "planted"
    program: ClassVar[str] = "Planted"
    runs: ClassVar[tuple[type[Workload], ...]] = (Prefill, Decode)
    alternative: ClassVar[str] = "plant another"
    in_words: ClassVar[frozenset[str]] = frozenset({"quant"})

    quant: str = ""
    slots: Annotated[int, Option(help="Slots of the planted engine.", kind=COUNT)] = 1


CONFIGS = {"planted": PlantedConfig}


class PlantedEngine:
    def open(self, source: Source, setup: EngineConfig, *, reserve_bytes: int = 0) -> Iterator[Event | Ending]:
        yield Ready(None, {"llama_cpp": "none"})
        yield Allocated((DeviceBuffers("PLANTED0", MemoryKind.REMOTE, weight_bytes=1 << 20),))
        yield Opened(0.1)
        yield Completed()

    def run(self, workload: Workload) -> Iterator[Event | Ending]:
        match workload:
            case Prefill(n_prompt, repeat):
                yield from (PromptRead(n_prompt, 5_000_000) for _ in range(repeat))
            case Decode(n_prompt, n_gen):
                step_ns = [20_000_000 + (n_prompt + n) * 10_000 for n in range(n_gen)]
                yield Steps(n_prompt + 1, step_ns, [], clock="client")
        yield Completed()

    def close(self) -> None:
        pass


def launch(cancel: threading.Event, *, timeout_s: float) -> Engine:
    return PlantedEngine()
