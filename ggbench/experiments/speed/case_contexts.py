"""Where the cases of a speed run are measured: each in a context of its own, or all in what a server has."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

from ggbench.engines.endings import Ending, Outcome, require_completed
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.engine import LlamaEngine
from ggbench.engines.transformers.config import TransformersConfig
from ggbench.experiments.speed.case_memory import CaseSize, size_cases
from ggbench.experiments.speed.record import Case, CaseMemory, SpeedSettings
from ggbench.runs.progress import Progress
from ggbench.runs.session import Session, kv_bytes_per_token
from ggbench.sizing.budget import checkpoint_budget
from ggbench.stats.serving import ServerFound
from ggbench.units import format_bytes

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
    def setup(self) -> LlamaConfig:
        """Return the setup of the run."""
        setup = self.session.setup
        assert isinstance(setup, LlamaConfig)
        return setup

    @property
    def n_batch(self) -> int:
        """Tokens of a physical batch."""
        return self.setup.n_ubatch

    def n_steps(self, case: Case) -> int:
        """All sequences step together."""
        return case.n_gen

    def open(self) -> Generator[Progress, None, Ending]:
        """Size all cases dry, then load the model alone. Raises DoesNotFit where no memory is free at all."""
        session = self.session
        file = yield from session.prepare_file()
        engine = session.rig.launch(self.setup, session.cancel)
        assert isinstance(engine, LlamaEngine)
        self._sizes = size_cases(engine, file, file.paths[0], self.setup, session.settings(SpeedSettings).cases)
        return (yield from session.open(self.setup))  # without an n_ctx

    def obstacle(self, case: Case) -> str:
        """That it does not fit into memory."""
        return self._sizes[case].obstacle

    def planned_memory(self, case: Case) -> CaseMemory | None:
        """By llama.cpp's own allocator, run dry."""
        return self._sizes[case].memory

    def open_case(self, case: Case) -> Generator[Progress, None, None]:
        """Replace the context by one of the case's length. Raises EngineEnded."""
        setup = replace(self.setup, n_ctx=case.n_ctx, n_seq_max=case.n_seqs)
        require_completed((yield from self.session.open(setup)))


@dataclass(slots=True)
class CheckpointContexts:
    """A cache of Transformers for each case alone, sized by arithmetic: nothing can be allocated dry."""

    refusal: ClassVar[Outcome] = Outcome.OUT_OF_MEMORY
    n_batch: ClassVar[int] = _SERVER_BATCH
    """Transformers computes a prompt at once; as much is computed to warm up as of other engines."""

    session: Session
    _free_bytes: int = 0
    """For weights and cache, before the model is loaded."""

    @property
    def setup(self) -> TransformersConfig:
        """Return the setup of the run."""
        setup = self.session.setup
        assert isinstance(setup, TransformersConfig)
        return setup

    def n_steps(self, case: Case) -> int:
        """All sequences step together."""
        return case.n_gen

    def open(self) -> Generator[Progress, None, Ending]:
        """Load the model alone. Raises DoesNotFit where no memory is free at all."""
        yield from self.session.prepare_file()
        self._free_bytes = checkpoint_budget(self.setup, None).held_bytes
        return (yield from self.session.open(self.setup))  # without an n_ctx

    def obstacle(self, case: Case) -> str:
        """That weights and cache alone do not fit into memory, where the cache is counted."""
        memory = self.planned_memory(case)
        if memory is None or memory.total_bytes <= self._free_bytes:
            return ""
        needed, free = format_bytes(memory.total_bytes), format_bytes(self._free_bytes)
        return f"weights and KV cache need {needed}, and {free} are free"

    def planned_memory(self, case: Case) -> CaseMemory | None:
        """Weights and KV cache; what computing takes beside them is not known."""
        file = self.session.file
        if file is None or file.weight_bytes is None or (per_token := kv_bytes_per_token(file, self.setup)) is None:
            return None
        return CaseMemory(file.weight_bytes, per_token * case.n_tokens, 0)

    def open_case(self, case: Case) -> Generator[Progress, None, None]:
        """Replace the cache by one of the case's length. Raises EngineEnded."""
        setup = replace(self.setup, n_ctx=case.n_tokens, n_seq_max=case.n_seqs)
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
    if not session.setup.loads_file:
        return ServedContexts(session)
    return OwnContexts(session) if session.setup.sizes_dry else CheckpointContexts(session)
