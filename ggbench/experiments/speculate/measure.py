"""The speculate experiment: steps of speculative decoding, timed part by part."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, ClassVar

from ggbench.experiments.speculate.record import (
    DraftedPair,
    PairMemory,
    SpeculateResult,
    SpeculateSettings,
    SpeculationCase,
    SpeculationRound,
    TextRound,
)
from ggbench.runs.experiment import Conclusion, Experiment, Job
from ggbench.runs.recording import Recording

if TYPE_CHECKING:
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
    observed = (DraftedPair, PairMemory, SpeculationRound, TextRound)

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
