"""Experiments: the workloads of each, their order, and the reduction of the recording to a result."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from msgspec.structs import replace

from ggbench.engines.contract import EngineConfig, Workload
from ggbench.engines.endings import Outcome
from ggbench.engines.events import Memory
from ggbench.errors import Unsupported
from ggbench.fields import reproduce, stated_options
from ggbench.plugins import load_plugin
from ggbench.record import Record
from ggbench.runs.recording import Recording, WorkerPeak
from ggbench.runs.run import Result, Settings
from ggbench.stats.decode_timing import Bandwidth
from ggbench.stats.intervals import ChunkMean

if TYPE_CHECKING:
    from ggbench.engines.endings import Ending
    from ggbench.hub.access import HubAccess
    from ggbench.models.reference import ModelRef
    from ggbench.models.targets import Target
    from ggbench.runs.progress import Measuring
    from ggbench.runs.run import Run
    from ggbench.runs.session import Base, Session
    from ggbench.stats.speed_curve import SpeedCurve


class Concluded(Record):
    """An experiment's own conclusion."""

    outcome: Outcome = Outcome.COMPLETED
    reason: str = ""
    """One line for the user; empty if there is nothing to explain."""


Conclusion: TypeAlias = "Concluded | Ending"
"""How an experiment ended."""


class MeasuredLoss(Record):
    """The loss of a file against a base, as mean KL divergence in nats."""

    cache: tuple[str, str]
    """Types of K and V, like `base_cache`."""
    base_header: str
    """SHA-256 of the base's header."""
    base_quant: str
    base_cache: tuple[str, str]
    text: tuple[str, int]
    """SHA-256 of its tokens, and the length of a chunk: only losses over the same text are comparable."""
    kld: ChunkMean


class Experiment(abc.ABC):
    """A kind of run. Instances are stateless: a run's state is in its session and its recording."""

    kind: ClassVar[str]
    """Name of its module in `ggbench.experiments`, and of the runs in the store."""
    settings_type: ClassVar[type[Settings]]
    result_type: ClassVar[type[Result]]
    observed: ClassVar[tuple[type, ...]] = ()
    """Types of its observations, besides those common to all runs."""
    measures_speed: ClassVar[bool] = True
    """Whether it times steps: it then needs the memory bandwidth, and its command line names the threads."""
    needs: ClassVar[tuple[type[Workload], ...]] = ()
    """Workloads that an engine has to run for it."""
    needs_trained: ClassVar[str] = ""
    """Why it cannot measure a twin, in one line; empty if it can."""
    needs_download: ClassVar[bool] = True
    """Whether a model on the Hub is downloaded first; False if its header is enough."""
    keeps_n_ctx: ClassVar[bool] = False
    """Whether it measures in one context, of the planned n_ctx if that is enough."""
    caution: ClassVar[str] = ""
    """What a user should know before it starts, in a sentence; empty if nothing."""
    timeout_s: ClassVar[float | None] = None
    """Longest time without a message before it counts as a hang; None for the engine's default."""

    @property
    def request_type(self) -> type[Settings]:
        """The record that `jobs` takes, made of its options; by default the settings."""
        return self.settings_type

    def jobs(
        self, request: Settings, ref: ModelRef, targets: Sequence[Target], setup: EngineConfig, hub: HubAccess
    ) -> list[Job]:
        """Return the jobs that measure these targets of a model. Raises UsageError, and Unsupported for a twin."""
        twins = [target for target in targets if target.provenance == "twin"]
        if self.needs_trained and twins:
            raise Unsupported(
                f"{twins[0].model} {twins[0].quant} is a twin: {self.needs_trained}", "use the file"
            )
        return [Job(self, target, target.setup(setup), request) for target in targets]

    def check(self, setup: EngineConfig, settings: Settings) -> None:
        """Raise UsageError, before any download, for a setup with which the settings cannot be measured.

        `settings` may also be a record of `request_type`.
        """
        self.check_engine(type(setup))
        setup.check()
        if settings.n_ctx_needed is not None:
            setup.check_holds(settings.n_ctx_needed)

    def check_engine(self, config: type[EngineConfig]) -> None:
        """Raise UsageError if the engine of these setups lacks a workload."""
        config.require(*self.needs)

    @abc.abstractmethod
    def measure(self, session: Session) -> Measuring[Conclusion]:
        """Run the experiment. A raised GgbenchError ends the run with that error."""

    @abc.abstractmethod
    def reduce(self, recording: Recording) -> Result | None:
        """Return the result of a recording, live or of a killed run; None if nothing was measured."""

    def command(self, job: Job, bandwidth: Bandwidth | None = None) -> str:
        """Return the command line that repeats the job from any folder; `bandwidth` is given if the user gave it."""
        given = {}
        if bandwidth is not None and self.measures_speed:
            given["bandwidth"] = f"{bandwidth.bytes_per_s / 1e9:.10g}GB/s"
        return reproduce(self.kind, job.target.words, job.setup, self.stated(job) | given)

    def stated(self, job: Job) -> dict[str, object]:
        """Return the options of that line besides the setup's: by default a draft and the settings' fields."""
        draft = {"draft": ":".join(job.draft.words)} if job.draft else {}
        return draft | stated_options(job.settings)

    def speed_of(self, run: Run, n_seqs: int = 1) -> SpeedCurve | None:
        """Return the file's speed with `n_seqs` sequences at once from a completed run; None, the default, if it
        measured none.
        """
        return None

    def loss_of(self, run: Run) -> MeasuredLoss | None:
        """Return the loss of the run's file against a base; None, the default, without a base."""
        return None

    def memory(self, recording: Recording, result: Result | None) -> Memory:
        memory, peak = recording.last(Memory) or Memory(), recording.last(WorkerPeak)
        return replace(memory, peak_bytes=None if peak is None else peak.peak_bytes)


class Job(Record):
    """One experiment on one target: an item of a queue."""

    experiment: Experiment
    target: Target
    setup: EngineConfig
    settings: Settings
    base: Base | None = None
    """None for an experiment without a base."""
    draft: Target | None = None
    """The model that drafts for the target; None for an experiment without one."""

    def __post_init__(self) -> None:
        self.experiment.check(self.setup, self.settings)


def experiment_of(kind: str) -> Experiment:
    """Return the experiment of this kind. Raises StoreError for an unknown kind."""
    found: Experiment = load_plugin("ggbench.experiments", kind, "measure", "experiment").EXPERIMENT
    return found
