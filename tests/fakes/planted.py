"""A machine whose best settings are known: fake workers with planted effects, noise, spikes and drift, and a clock."""

import contextlib
import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from ggbench.engines import protocol
from ggbench.engines.contract import BatchAtDepth, DecodeAtDepth, Request
from ggbench.engines.endings import Completed, Crashed, Ending
from ggbench.engines.events import PromptRead, Steps
from ggbench.engines.llama.config import LlamaConfig, MakeContext
from ggbench.experiments.tune.measure import EXPERIMENT
from ggbench.experiments.tune.record import TuneSettings
from ggbench.models.targets import Target
from ggbench.runs.driver import run_job
from ggbench.runs.experiment import Job
from ggbench.runs.progress import Finished
from ggbench.runs.run import Run
from ggbench.runs.session import RunContext
from ggbench.runs.store.database import Store
from tests.fakes.engine import fake_rig, obey

Effects = Mapping[tuple[str, Any], float]
"""How many times as long a step takes with that value of a setting."""


@dataclass
class PlantedMachine:
    """Workers whose steps take what their settings cost, times the noise of each measurement and a drift over time."""

    seed: int
    effects: Effects = field(default_factory=dict)
    at_depth: Effects = field(default_factory=dict)
    """Applies only to steps far into a context."""
    noise: float = 0.02
    """Standard deviation of a measurement, as a share of it."""
    step_noise: float = 0.02
    """Applies to a single step in it."""
    drift_per_s: float = 0.0
    """Share by which the machine is slower after each second."""
    jump_at_s: float = math.inf
    jump: float = 1.0
    """How many times slower the machine is from then on."""
    fatal: tuple[str, Any] | None = None
    """Value of a setting with which the worker ends in the middle of a decode."""
    fatal_from: int = 0
    """Measurements before the first that ends so."""
    n_fatal: int = 0
    """Measurements that ended so."""
    n_logical: int = 4
    """Threads that it runs at once."""
    before_each: Callable[[int], object] = lambda number: None
    """Called before each measurement with its number."""
    seconds: float = 0.0
    """Its clock: what all that was measured took."""
    n_measured: int = 0

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self._setup = LlamaConfig()
        self._level = 1.0

    def clock(self) -> float:
        return self.seconds

    def cost(self, setup: LlamaConfig, n_depth: int) -> float:
        planted = [self.effects, self.at_depth] if n_depth > 1 else [self.effects]
        return math.prod(
            factor for effects in planted for (name, value), factor in effects.items() if getattr(setup, name) == value
        )

    def answer(self, request: Request) -> Iterator[protocol.Message | Ending]:
        match request:
            case MakeContext(setup):
                self._setup = setup
                self._level = math.exp(self._rng.gauss(0, self.noise))
                yield from obey(request)
            case DecodeAtDepth() if self._is_fatal:
                self.n_fatal += 1
                yield Crashed("it died")
            case DecodeAtDepth(n_depth, n_gen):
                self.before_each(self.n_measured)
                step_ms = (10.0 + n_depth / 500) * self.cost(self._setup, n_depth) * self._level
                step_ms *= 1 + self.drift_per_s * self.seconds
                step_ms *= self.jump if self.seconds >= self.jump_at_s else 1.0
                steps = [round(step_ms * 1e6 * math.exp(self._rng.gauss(0, self.step_noise))) for _ in range(n_gen)]
                self.seconds += sum(steps) / 1e9 + 0.1
                self.n_measured += 1
                yield Steps(n_depth + 2, steps, [])
                if isinstance(request, BatchAtDepth):
                    yield PromptRead(request.n_batch, round(request.n_batch * step_ms * 1e5))
                yield Completed()
            case _:
                yield from obey(request)

    @property
    def _is_fatal(self) -> bool:
        is_due = self.n_measured >= self.fatal_from
        return self.fatal is not None and is_due and getattr(self._setup, self.fatal[0]) == self.fatal[1]

    @contextlib.contextmanager
    def clocked(self) -> Iterator[None]:
        """Let searches run by its clock and CPUs."""
        where = "ggbench.experiments.tune.measure"
        with patch.multiple(where, monotonic=self.clock, logical_cpus=lambda: self.n_logical):
            yield

    def rig(self, store: Store | None = None) -> RunContext:
        return fake_rig(store, dict.fromkeys(range(1000), self.answer))[0]

    def tune(self, target: Target, settings: TuneSettings, setup: LlamaConfig | None = None) -> Run:
        job = Job(EXPERIMENT, target, setup or LlamaConfig(), settings)
        with self.clocked():
            *_, finished = run_job(self.rig(), job)
        assert isinstance(finished, Finished)
        if finished.error is not None:
            raise finished.error
        return finished.run
