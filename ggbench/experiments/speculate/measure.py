"""The speculate experiment: steps of speculative decoding, timed part by part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ggbench.engines.contract import Continue, EngineConfig, Speculate
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import UsageError
from ggbench.experiments.speculate.record import (
    AnsweredText,
    DraftedPair,
    SpeculateRequest,
    SpeculateResult,
    SpeculateSettings,
    SpeculationRound,
)
from ggbench.runs.experiment import Conclusion, Experiment, Job
from ggbench.runs.recording import Recording
from ggbench.runs.run import Settings

if TYPE_CHECKING:
    from ggbench.hub.access import HubAccess
    from ggbench.models.reference import ModelRef
    from ggbench.models.targets import Target
    from ggbench.runs.progress import Measuring
    from ggbench.runs.session import Session


class SpeculateExperiment(Experiment):
    """Time single tokens and steps of each k alternately, with both models in one process."""

    kind = "speculate"
    settings_type = SpeculateSettings
    result_type = SpeculateResult
    needs_download = False
    observed = (DraftedPair, SpeculationRound, AnsweredText)

    def check_engine(self, config: type[EngineConfig]) -> None:
        """Raise UsageError if the engine neither times the parts of a step nor answers with drafts."""
        if config.unsupported(Continue):
            config.require(Speculate)

    def check(self, setup: EngineConfig, settings: Settings) -> None:
        """Raises UsageError also for types of drafts that exclude each other."""
        super().check(setup, settings)
        assert isinstance(settings, SpeculateSettings)
        kind, has_own_layers = settings.spec_type, LlamaConfig.of(setup).mtp
        if has_own_layers and kind not in ("", "draft-mtp"):
            raise UsageError(f"--mtp and --spec-type {kind} exclude each other", "omit one of them")
        if setup.unsupported(Speculate):
            setup.drafting(kind, settings.n_served)
            if settings.depths != SpeculateSettings().depths:
                raise UsageError("a server continues short texts, not at a depth", "omit --n-depth")
            if kind.startswith("ngram") and settings.n_drafted:
                raise UsageError(f"-k does not limit drafts of type {kind}", "omit -k")
        elif kind:
            raise UsageError(f"ggbench's own llama.cpp does not draft by {kind}", "add --engine llama-server")

    @property
    def request_type(self) -> type[SpeculateRequest]:
        return SpeculateRequest

    def jobs(
        self, request: Settings, ref: ModelRef, targets: Sequence[Target], setup: EngineConfig, hub: HubAccess
    ) -> list[Job]:
        """Raises UsageError for a request without a draft, which names those beside, and like `find_file_or_twin`."""
        from ggbench.models.targets import draft_ref, drafts_beside, find_file_or_twin

        assert isinstance(request, SpeculateRequest)
        if not (request.draft or request.spec_type or LlamaConfig.of(setup).mtp):
            named = next(iter(drafts_beside(ref, hub)), "MODEL, a smaller one of the same family")
            served = "; with --engine llama-server, --mtp or --spec-type ngram-simple needs none"
            raise UsageError("speculate needs a draft model", f"name one: --draft {named}{served}")
        draft = find_file_or_twin(draft_ref(request.draft), hub) if request.draft else None
        return [Job(self, target, setup, request.settings, draft=draft) for target in targets]

    def measure(self, session: Session) -> Measuring[Conclusion]:
        """Raises UsageError or Unsupported for an unsuitable pair, before anything is written or loaded."""
        if session.setup.unsupported(Speculate):
            from ggbench.experiments.speculate.answers import measure_answers

            return (yield from measure_answers(session))
        from ggbench.experiments.speculate.pair_timer import time_pair

        return (yield from time_pair(session))

    def reduce(self, recording: Recording) -> SpeculateResult | None:
        from ggbench.experiments.speculate.answers import answered_texts
        from ggbench.experiments.speculate.pair_timer import timed_cases

        pair = recording.last(DraftedPair)
        if pair is None:
            return None
        cases = tuple(timed_cases(recording.of(SpeculationRound)))
        return SpeculateResult(pair, cases, tuple(answered_texts(recording.of(AnsweredText))))


EXPERIMENT = SpeculateExperiment()
