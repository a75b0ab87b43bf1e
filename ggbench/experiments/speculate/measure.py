"""The speculate experiment: steps of speculative decoding, timed part by part."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, ClassVar

import msgspec
from msgspec.structs import replace

from ggbench.errors import NetworkError, UsageError
from ggbench.experiments.speculate.record import (
    DraftedPair,
    PairMemory,
    SpeculateRequest,
    SpeculateResult,
    SpeculateSettings,
    SpeculationCase,
    SpeculationRound,
)
from ggbench.models.reference import ModelRef, parse_model
from ggbench.models.targets import Target, resolve_one
from ggbench.runs.experiment import Conclusion, Experiment, Job
from ggbench.runs.recording import Recording

if TYPE_CHECKING:
    from ggbench.engines.contract import EngineConfig
    from ggbench.hub.access import HubAccess
    from ggbench.runs.progress import Progress
    from ggbench.runs.run import Settings
    from ggbench.runs.session import Session


class SpeculateExperiment(Experiment):
    """Time single tokens and steps of each k alternately, with both models in one process."""

    kind: ClassVar[str] = "speculate"
    settings_type = SpeculateSettings
    result_type = SpeculateResult
    needs_file: ClassVar[str] = "a server does not say how long each part of a step takes"
    needs_own_engine: ClassVar[str] = needs_file
    needs_download: ClassVar[bool] = False
    needs_gguf: ClassVar[str] = "steps are timed with llama.cpp"
    observed = (DraftedPair, PairMemory, SpeculationRound)

    @property
    def request_type(self) -> type[msgspec.Struct]:
        return SpeculateRequest

    def check(self, setup: EngineConfig, settings: Settings) -> None:
        super().check(setup, settings)
        if isinstance(settings, SpeculateRequest) and not settings.draft:
            raise UsageError("there is no draft model", "write it as MODEL:QUANT, e.g. qwen2.5-0.5b:q8_0, or as a file")

    def jobs(
        self, request: object, ref: ModelRef, targets: Sequence[Target], setup: EngineConfig, hub: HubAccess
    ) -> list[Job]:
        """Raises UsageError or NetworkError if the draft cannot be found."""
        assert isinstance(request, SpeculateRequest)
        settings = SpeculateSettings(request.n_drafted, request.depths, request.within_s, request.rounds)
        draft = find_or_twin(parse_model(request.draft), hub)
        return [replace(job, draft=draft) for job in super().jobs(settings, ref, targets, setup, hub)]

    def measure(self, session: Session) -> Generator[Progress, None, Conclusion]:
        """Raises UsageError or Unsupported for an unsuitable pair, before anything is written or loaded."""
        from ggbench.experiments.speculate.pair_timer import time_pair

        return (yield from time_pair(session))

    def reduce(self, recording: Recording) -> SpeculateResult | None:
        from ggbench.experiments.speculate.steps import measured_steps

        pair, rounds = recording.last(DraftedPair), recording.of(SpeculationRound)
        if pair is None:
            return None
        cases = [SpeculationCase(n_depth, step) for n_depth, step in measured_steps(rounds, pair.layers)]
        memory = recording.last(PairMemory)
        return SpeculateResult(pair.draft, tuple(cases), pair.basis, pair.has_random_router, memory)

    def stated(self, job: Job) -> dict[str, object]:
        return {"draft": ":".join(job.draft.words) if job.draft else None, **super().stated(job)}


EXPERIMENT = SpeculateExperiment()


def find_or_twin(ref: ModelRef, hub: HubAccess) -> Target:
    """Return the file if it is on this disk, else a twin of the model. Raises like `resolve_one`."""
    twin = ref.as_twin() if ref.kind != "hub" else replace(ref, kind="published_twin", label=f"twin:{ref.label}")
    try:
        found = resolve_one(ref, hub=hub)
    except (NetworkError, UsageError):
        if twin == ref or not ref.quants:
            raise
        return resolve_one(twin, hub=hub)
    return found if not found.download_bytes else resolve_one(twin, hub=hub)
