"""The speculate experiment: steps of speculative decoding, timed part by part."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace

from ggbench.engines.contract import EngineConfig
from ggbench.errors import NetworkError, UsageError
from ggbench.experiments.speculate.record import (
    DraftedPair,
    PairMemory,
    SpeculateRequest,
    SpeculateResult,
    SpeculateSettings,
    SpeculationCase,
    SpeculationRound,
    TextRound,
)
from ggbench.runs.experiment import Conclusion, Experiment, Job
from ggbench.runs.recording import Recording

if TYPE_CHECKING:
    from ggbench.hub.access import HubAccess
    from ggbench.models.reference import ModelRef
    from ggbench.models.targets import Target
    from ggbench.runs.progress import Progress
    from ggbench.runs.session import Session


class SpeculateExperiment(Experiment):
    """Time single tokens and steps of each k alternately, with both models in one process."""

    kind: ClassVar[str] = "speculate"
    settings_type = SpeculateSettings
    result_type = SpeculateResult
    needs_file: ClassVar[str] = "a server does not say how long each part of a step takes"
    needs_own_engine: ClassVar[str] = needs_file
    needs_gguf: ClassVar[str] = "steps are timed with llama.cpp"
    needs_download: ClassVar[bool] = False
    observed = (DraftedPair, PairMemory, SpeculationRound, TextRound)

    @property
    def request_type(self) -> type[SpeculateRequest]:
        return SpeculateRequest

    def jobs(
        self, request: object, ref: ModelRef, targets: Sequence[Target], setup: EngineConfig, hub: HubAccess
    ) -> list[Job]:
        """Raises UsageError without a draft, and like `find_file_or_twin`."""
        from ggbench.models.reference import parse_model

        assert isinstance(request, SpeculateRequest)
        if not request.draft:
            raise UsageError("speculate needs a draft model", "name a smaller model of the same family: --draft MODEL")
        draft = find_file_or_twin(parse_model(request.draft), hub)
        return [Job(self, target, setup, request.settings, draft=draft) for target in targets]

    def measure(self, session: Session) -> Generator[Progress, None, Conclusion]:
        """Raises UsageError or Unsupported for an unsuitable pair, before anything is written or loaded."""
        from ggbench.experiments.speculate.pair_timer import time_pair

        return (yield from time_pair(session))

    def reduce(self, recording: Recording) -> SpeculateResult | None:
        from ggbench.experiments.speculate.steps import measured_steps
        from ggbench.experiments.speculate.texts import drafted_texts

        pair, rounds = recording.last(DraftedPair), recording.of(SpeculationRound)
        if pair is None:
            return None
        cases = [SpeculationCase(n_depth, step) for n_depth, step in measured_steps(rounds, pair.layers)]
        nearest = [each for each in cases if each.n_depth == cases[0].n_depth]
        texts = tuple(drafted_texts(recording.of(TextRound), nearest))
        memory = recording.last(PairMemory)
        return SpeculateResult(pair.draft, tuple(cases), pair.basis, pair.has_random_router, memory, texts)

    def stated(self, job: Job) -> dict[str, object]:
        return {"draft": ":".join(job.draft.words) if job.draft else None, **super().stated(job)}


EXPERIMENT = SpeculateExperiment()


def find_file_or_twin(ref: ModelRef, hub: HubAccess) -> Target:
    """Return the file if it is on this disk, else a twin of the model; downloads only headers.

    Raises UsageError for a server or another format, and like `resolve_one`.
    """
    from ggbench.models.targets import resolve_one

    is_published = ref.require_gguf().kind == "hub"
    twin = replace(ref, kind="published_twin", label=f"twin:{ref.label}") if is_published else ref.as_twin()
    try:
        found = resolve_one(ref, hub=hub)
    except (NetworkError, UsageError):
        if twin == ref or not ref.quants:
            raise
        return resolve_one(twin, hub=hub)
    return resolve_one(twin, hub=hub) if found.download_bytes else found
