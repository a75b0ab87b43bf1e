"""Where the cases of a speed run are measured: each in a context of its own, or all in what a server has."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

import msgspec
from msgspec.structs import replace

from ggbench.engines.contract import Engine, EngineConfig
from ggbench.engines.endings import Ending, Outcome, require_completed
from ggbench.engines.llama.config import LARGEST_N_CTX, LlamaConfig
from ggbench.experiments.speed.record import Case, CaseMemory, SpeedSettings
from ggbench.gguf_file.model_file import ModelFile
from ggbench.runs.progress import Progress
from ggbench.runs.session import Session, kv_bytes_per_token
from ggbench.sizing.budget import budget_by_theory
from ggbench.sizing.what_helps import SetupSizes
from ggbench.stats.serving import ServerFound
from ggbench.units import format_bytes, format_count

_SERVER_BATCH = 512
"""Tokens of the request before a case on a server, whose physical batch is not known: llama-server's default."""


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
            engine = session.context.launch(setup, session.cancel)
            self._sizes = size_cases(engine, file, LlamaConfig.of(setup), cases)
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


CaseContexts: TypeAlias = OwnContexts | ServedContexts
"""The place of the cases of one quant; `refusal` is how a case ends that cannot be measured there."""


def case_contexts(session: Session) -> CaseContexts:
    """Return the place for the cases of a session's setup."""
    return OwnContexts(session) if session.setup.loads_file else ServedContexts(session)


class CaseSize(msgspec.Struct, frozen=True):
    """One case before it runs."""

    memory: CaseMemory | None = None
    """None where llama.cpp would not size it."""
    obstacle: str = ""
    """Why it does not fit, in one line; empty where it does as far as is known."""


def size_cases(engine: Engine, file: ModelFile, setup: LlamaConfig, cases: Sequence[Case]) -> dict[Case, CaseSize]:
    """Return the size of every case, in milliseconds once the worker is ready; ends the engine.

    Raises DoesNotFit where no memory is free at all.
    """
    largest = f"llama.cpp's maximum n_ctx is {format_count(LARGEST_N_CTX)}"
    sized = [case for case in cases if case.n_ctx <= LARGEST_N_CTX]
    setups = [replace(setup, n_ctx=case.n_ctx, n_seq_max=case.n_seqs) for case in sized]
    found = dict(zip(sized, SetupSizes(lambda: engine, file, setup).of(setups), strict=True))
    sizes = {}
    for case in cases:
        size = found.get(case)
        if size is None:
            sizes[case] = CaseSize(obstacle=f"needs an n_ctx of {format_count(case.n_ctx)}, and {largest}")
        elif size.context is None or file.weight_bytes is None:
            sizes[case] = CaseSize()  # the real load will say why
        else:
            context = size.context
            compute = context.device_compute_bytes + context.host_compute_bytes + context.output_bytes
            memory = CaseMemory(file.weight_bytes, context.cache_bytes, compute)
            sizes[case] = CaseSize(memory, size.obstacle)
    return sizes


def size_cases_by_theory(file: ModelFile, setup: EngineConfig, cases: Sequence[Case]) -> dict[Case, CaseSize]:
    """Return the size of every case by weights and KV cache alone, of an engine that sizes nothing dry.

    Raises DoesNotFit where no memory is free at all.
    """
    free_bytes, per_token = budget_by_theory(setup, None).held_bytes, kv_bytes_per_token(file, setup)
    if file.weight_bytes is None or per_token is None:
        return {case: CaseSize() for case in cases}
    sizes = {}
    for case in cases:
        memory = CaseMemory(file.weight_bytes, per_token * case.n_tokens, 0)
        free, needed = format_bytes(free_bytes), format_bytes(memory.total_bytes)
        is_fitting = memory.total_bytes <= free_bytes
        sizes[case] = CaseSize(memory, "" if is_fitting else f"weights and KV cache need {needed}, and {free} are free")
    return sizes
