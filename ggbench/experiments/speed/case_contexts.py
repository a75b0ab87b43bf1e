"""Where the cases of a speed run are measured: each in a context of its own, or all in what a server has."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from ggbench.engines.endings import Ending, Outcome, require_completed
from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.speed.case_memory import CaseSize, size_cases, size_cases_by_theory
from ggbench.experiments.speed.record import Case, CaseMemory, SpeedSettings
from ggbench.runs.progress import Progress
from ggbench.runs.session import Session
from ggbench.stats.serving import ServerFound

_SERVER_BATCH = 512
"""Tokens of the request before a case on a server, whose physical batch is not known: llama-server's default."""


class CaseContexts(Protocol):
    """The place of the cases of one quant."""

    refusal: ClassVar[Outcome]
    """How a case ends that cannot be measured here."""

    @property
    def n_batch(self) -> int:
        """Tokens that are computed at once, to warm up with."""
        ...

    def n_steps(self, case: Case) -> int:
        """Steps that are timed: of all sequences together, or of each."""
        ...

    def open(self) -> Generator[Progress, None, Ending]:
        """Load the model, or find the server that has. Raises GgbenchError."""
        ...

    def obstacle(self, case: Case) -> str:
        """Why a case cannot be measured here; empty where it can."""
        ...

    def planned_memory(self, case: Case) -> CaseMemory | None:
        """What it would take; None where that is unknown."""
        ...

    def open_case(self, case: Case) -> Generator[Progress, None, None]:
        """Make room for a case. Raises EngineEnded."""
        ...


@dataclass(slots=True)
class OwnContexts:
    """A context for each case alone."""

    refusal: ClassVar[Outcome] = Outcome.OUT_OF_MEMORY

    session: Session
    _sizes: Mapping[Case, CaseSize] = field(default_factory=dict)

    @property
    def n_batch(self) -> int:
        """Tokens of a physical batch; of an engine that computes a prompt at once, as many as of other engines."""
        return self.session.setup.n_ubatch or _SERVER_BATCH

    def n_steps(self, case: Case) -> int:
        """All sequences step together."""
        return case.n_gen

    def open(self) -> Generator[Progress, None, Ending]:
        """Size all cases, then load the model alone. Raises DoesNotFit where no memory is free at all."""
        session, setup = self.session, self.session.setup
        file, cases = (yield from session.prepare_file()), session.settings(SpeedSettings).cases
        if setup.sizes_dry:
            engine = session.rig.launch(setup, session.cancel)
            self._sizes = size_cases(engine, file, file.paths[0], LlamaConfig.of(setup), cases)
        else:
            self._sizes = size_cases_by_theory(file, setup, cases)
        return (yield from session.open(setup))  # without an n_ctx

    def obstacle(self, case: Case) -> str:
        """That it does not fit into memory."""
        return self._sizes[case].obstacle

    def planned_memory(self, case: Case) -> CaseMemory | None:
        """By the engine's own allocator run dry, else by theory."""
        return self._sizes[case].memory

    def open_case(self, case: Case) -> Generator[Progress, None, None]:
        """Replace the context by one of the case's length. Raises EngineEnded."""
        setup = self.session.setup.with_context(case.n_tokens // case.n_seqs, case.n_seqs)
        require_completed((yield from self.session.open(setup)))


@dataclass(slots=True)
class ServedContexts:
    """The contexts that a server made when it started."""

    refusal: ClassVar[Outcome] = Outcome.SKIPPED

    session: Session

    @property
    def n_batch(self) -> int:
        """Unknown; as most servers have it."""
        return _SERVER_BATCH

    def n_steps(self, case: Case) -> int:
        """Each request is timed by itself."""
        return case.n_seqs * case.n_gen

    def open(self) -> Generator[Progress, None, Ending]:
        """Find the server."""
        return (yield from self.session.open())

    def obstacle(self, case: Case) -> str:
        """That a request is longer than the server allows."""
        server = self.session.recorder.recording.last(ServerFound)
        needed = case.n_input + case.n_gen + 1
        if server is None or server.n_ctx is None or needed <= server.n_ctx:
            return ""
        return f"{needed:,} tokens do not fit into the server's context of {server.n_ctx:,}"

    def planned_memory(self, case: Case) -> CaseMemory | None:
        """Unknown: a server does not say what it takes."""
        return None

    def open_case(self, case: Case) -> Generator[Progress, None, None]:
        """Nothing to make."""
        yield from ()


def case_contexts(session: Session) -> CaseContexts:
    """Return the place for the cases of a session's setup."""
    return OwnContexts(session) if session.setup.loads_file else ServedContexts(session)
