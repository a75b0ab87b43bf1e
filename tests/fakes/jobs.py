"""What a queue of runs asks for, over fake workers."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from ggbench.engines import protocol
from ggbench.engines.contract import Decode, ProveContext, Request
from ggbench.engines.endings import Completed, Ending, OutOfMemory
from ggbench.engines.events import ContextProven, Steps
from ggbench.engines.llama.config import LlamaConfig, MakeContext
from ggbench.experiments.decode.record import DecodeSettings
from ggbench.experiments.maxctx.record import MaxctxSettings
from ggbench.experiments.quality.measure import largest_here, quality_jobs
from ggbench.experiments.quality.record import QualitySettings
from ggbench.experiments.quality.texts import find_text
from ggbench.machine.records import MachineReading
from ggbench.models.reference import parse_model
from ggbench.models.targets import Target, resolve
from ggbench.runs.experiment import Experiment, Job, experiment_of
from ggbench.runs.session import RunContext
from ggbench.runs.store.database import Store
from tests.fakes.engine import Answer, FakeWorker, fake_rig, obey
from tests.fakes.watched import WAIT_S

_WORKERS = 1000
"""More than one job starts: the proof of a search starts one for each measurement."""


def decodes(targets: Sequence[Target], n_gen: int, setup: LlamaConfig | None = None) -> list[Job]:
    experiment = experiment_of("decode")
    return [Job(experiment, target, setup or LlamaConfig(), DecodeSettings(n_gen)) for target in targets]


def searches(targets: Sequence[Target], setup: LlamaConfig) -> list[Job]:
    experiment = experiment_of("maxctx")
    return [Job(experiment, target, setup, MaxctxSettings()) for target in targets]


def scored(folder: Path, text: Path, n_ctx: int = 32) -> list[Job]:
    targets = resolve(parse_model(str(folder)))
    settings = QualitySettings(find_text(text)[0], n_ctx, n_seqs=8)
    return quality_jobs(targets, LlamaConfig(), settings, [largest_here(targets)] * len(targets))


@dataclass
class FakeServices:
    """Opens a store in a folder, and makes rigs; the workers of the n-th answer as `answers[n]` says, else obey."""

    folder: Path
    answers: list[Answer] = field(default_factory=list)
    rigs: list[RunContext] = field(default_factory=list)
    reading: MachineReading = field(default_factory=lambda: MachineReading(0, None, None, None))
    n_readings: int = 0
    _workers: list[list[FakeWorker]] = field(default_factory=list)

    @property
    def workers(self) -> list[FakeWorker]:
        return [worker for started in self._workers for worker in started]

    def read_machine(self) -> MachineReading:
        self.n_readings += 1
        return self.reading

    def open_store(self) -> Store:
        return Store.open(self.folder / "results.sqlite")

    def run_context(self, store: Store | None, experiment: Experiment) -> RunContext:
        number = len(self.rigs)
        answers = dict.fromkeys(range(_WORKERS), self.answers[number]) if number < len(self.answers) else {}
        rig, workers = fake_rig(store, answers)
        self._workers.append(workers)
        self.rigs.append(replace(rig, read_machine=self.read_machine))
        return self.rigs[-1]


@dataclass
class Gate:
    """A worker that stops in the middle of its decode until the test lets it go on."""

    reached: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)

    def answer(self, request: Request) -> Iterator[protocol.Message | Ending]:
        for item in obey(request):
            if isinstance(item, Steps) and isinstance(request, Decode) and item.first_position > 200:
                self.reached.set()
                assert self.opened.wait(WAIT_S)
            yield item


def small_context(request: Request) -> Iterator[protocol.Message | Ending]:
    match request:
        case MakeContext(setup) if (setup.n_ctx or 0) > 2048:
            yield OutOfMemory("context", "failed to allocate the KV cache")
        case ProveContext():
            yield ContextProven(full=True)
            yield Completed()
        case _:
            yield from obey(request)
