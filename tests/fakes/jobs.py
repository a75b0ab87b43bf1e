"""What a queue of runs asks for, over fake engines."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ggbench.experiments.rig import Rig

from ggbench.engine import protocol
from ggbench.engine.endings import Completed, Ending
from ggbench.records.machine import MachineReading
from ggbench.store.database import Store
from tests.fakes.engine import Answer, FakeEngine, fake_rig, obey
from tests.fakes.watched import WAIT_S

_ENGINES = 16
"""More than one job starts."""


@dataclass
class FakeServices:
    """Opens a store in a folder, and makes rigs; the engines of the n-th answer as `answers[n]` says, else obey."""

    folder: Path
    answers: list[Answer] = field(default_factory=list)
    engines: list[FakeEngine] = field(default_factory=list)
    rigs: list[Rig] = field(default_factory=list)
    reading: MachineReading = field(default_factory=lambda: MachineReading(0, None, None, None))
    n_readings: int = 0

    def read_machine(self) -> MachineReading:
        """The same each time."""
        self.n_readings += 1
        return self.reading

    def open_store(self) -> Store:
        """Belongs to the thread that asks."""
        return Store.open(self.folder / "results.sqlite")

    def make_rig(self, store: Store | None) -> Rig:
        """One for each job."""
        number = len(self.rigs)
        answers = dict.fromkeys(range(_ENGINES), self.answers[number]) if number < len(self.answers) else {}
        rig, engines = fake_rig(store, answers)
        launch = rig.launch

        def remember(event: threading.Event) -> FakeEngine:
            launch(event)
            self.engines.append(engines[-1])
            return engines[-1]

        object.__setattr__(rig, "launch", remember)
        self.rigs.append(rig)
        return rig


@dataclass
class Gate:
    """An engine that stops in the middle of its decode until the test lets it go on."""

    reached: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)

    def answer(self, request: protocol.Request) -> Iterator[protocol.Event | Ending]:
        """As a worker in good health, but for the wait in the timed decode."""
        for item in obey(request):
            if isinstance(item, protocol.Decoded) and item.phase == "decode" and item.first_position > 200:
                self.reached.set()
                assert self.opened.wait(WAIT_S)
            yield item


def small_context(request: protocol.Request) -> Iterator[protocol.Event | Ending]:
    """A machine where contexts up to 2,048 tokens work."""
    from ggbench.engine.endings import OutOfMemory

    match request:
        case protocol.MakeContext(n_ctx=n_ctx) if n_ctx > 2048:
            yield OutOfMemory("context", "failed to allocate the KV cache")
        case protocol.ProveContext():
            yield protocol.ContextProven(0.1, 512, 1_000_000, 1_000_000, "copied", full=True)
            yield Completed()
        case _:
            yield from obey(request)
