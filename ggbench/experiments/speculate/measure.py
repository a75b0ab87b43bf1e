"""The speculate experiment: steps of speculative decoding, timed part by part."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, ClassVar

from ggbench.engines.contract import EngineConfig
from ggbench.errors import UsageError
from ggbench.experiments.speculate.record import (
    AnsweredText,
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
from ggbench.runs.run import Settings

if TYPE_CHECKING:
    from ggbench.runs.progress import Progress
    from ggbench.runs.session import Session


class SpeculateExperiment(Experiment):
    """Time single tokens and steps of each k alternately, with both models in one process."""

    kind: ClassVar[str] = "speculate"
    settings_type = SpeculateSettings
    result_type = SpeculateResult
    needs_file: ClassVar[str] = "a server does not say how long each part of a step takes"
    needs_gguf: ClassVar[str] = "steps are timed with llama.cpp"
    observed = (DraftedPair, PairMemory, SpeculationRound, TextRound, AnsweredText)

    def check(self, setup: EngineConfig, settings: Settings) -> None:
        super().check(setup, settings)
        assert isinstance(settings, SpeculateSettings)
        if setup.is_served:
            setup.drafting(settings.spec_type, n_draft=settings.n_served)
        elif settings.spec_type:
            raise UsageError(
                f"ggbench's own llama.cpp does not draft by {settings.spec_type}",
                "add --engine llama-server=PATH, or give a draft model",
            )

    def measure(self, session: Session) -> Generator[Progress, None, Conclusion]:
        """Raises UsageError or Unsupported for an unsuitable pair, before anything is written or loaded."""
        if session.setup.is_served:
            from ggbench.experiments.speculate.answers import measure_answers

            return (yield from measure_answers(session))
        from ggbench.experiments.speculate.pair_timer import time_pair

        return (yield from time_pair(session))

    def reduce(self, recording: Recording) -> SpeculateResult | None:
        from ggbench.experiments.speculate.answers import answered_texts
        from ggbench.experiments.speculate.steps import measured_steps
        from ggbench.experiments.speculate.texts import drafted_texts

        pair, rounds = recording.last(DraftedPair), recording.of(SpeculationRound)
        if pair is None:
            return None
        cases = [SpeculationCase(n_depth, step) for n_depth, step in measured_steps(rounds, pair.layers)]
        nearest = [each for each in cases if each.n_depth == cases[0].n_depth]
        texts = (*drafted_texts(recording.of(TextRound), nearest), *answered_texts(recording.of(AnsweredText)))
        memory = recording.last(PairMemory)
        return SpeculateResult(
            pair.draft, tuple(cases), pair.basis, pair.has_random_router, memory, texts, pair.spec_type
        )

    def stated(self, job: Job) -> dict[str, object]:
        return {"draft": ":".join(job.draft.words) if job.draft else None, **super().stated(job)}


EXPERIMENT = SpeculateExperiment()
