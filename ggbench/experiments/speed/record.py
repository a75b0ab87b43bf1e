"""Speed by input length and batch size, as defined by the published tables: the settings, and the result of each
case.
"""

from __future__ import annotations

from typing import Annotated

from ggbench.engines.endings import Outcome
from ggbench.errors import UsageError
from ggbench.fields import BATCH_SIZES, MOST_SLOTS, TOKEN_LIST, TOKENS, Option
from ggbench.record import Record
from ggbench.runs.run import Result, Run, Settings, require_positive
from ggbench.stats.decode_timing import LatencySummary, ServingFigures

INPUTS = (1, 6144, 14336, 30720, 63488, 129024)
"""Input lengths of the tables of Qwen1.5, Qwen2, Qwen2.5 and Qwen3."""
N_GEN = 2048
"""Tokens generated in those tables."""
_INPUTS_OPTION = Option("--inputs", "Input lengths in tokens, e.g. 1,512,6k.", TOKEN_LIST)
_N_GEN_OPTION = Option(
    "-n --n-gen", "Tokens to generate for each sequence. Past any end of generation.", TOKENS, name="n"
)
_BATCHES = f"Sequences generated at once, e.g. 1,8,32. One for each user; at most {MOST_SLOTS}."
_BATCH_OPTION = Option("-np --batch --parallel", _BATCHES, BATCH_SIZES, name="batch")


class Case(Record, order=True):
    """Several sequences decoded at once, each after its own prompt."""

    n_seqs: int
    """Sequences generated at once."""
    n_input: int
    """Tokens of each sequence's prompt."""
    n_gen: int
    """Tokens generated for each sequence."""

    @property
    def name(self) -> str:
        """`input 6,144, batch 8`."""
        return f"input {self.n_input:,}, batch {self.n_seqs}"

    @property
    def series(self) -> str:
        """Name of the series of its decode steps: `decode/i6144/b8`."""
        return f"decode/i{self.n_input}/b{self.n_seqs}"

    @property
    def n_tokens(self) -> int:
        """Tokens in the KV cache, over all sequences."""
        return self.n_seqs * (self.n_input + self.n_gen)


class SpeedSettings(Settings, Record):
    """The cases to measure: every input length with every batch size. Raises UsageError for impossible numbers."""

    inputs: Annotated[tuple[int, ...], _INPUTS_OPTION] = INPUTS
    n_gen: Annotated[int, _N_GEN_OPTION] = N_GEN
    batches: Annotated[tuple[int, ...], _BATCH_OPTION] = (1,)
    """Batch sizes, in sequences."""

    def __post_init__(self) -> None:
        counts = [("the number of tokens to generate", self.n_gen)]
        counts += [("an input length", each) for each in self.inputs]
        counts += [("a batch size", each) for each in self.batches]
        for what, value in counts:
            require_positive(what, value)
        if (largest := max(self.batches)) > MOST_SLOTS:
            raise UsageError(
                f"a batch of {largest:,} sequences is more than llama.cpp supports", f"use at most {MOST_SLOTS}"
            )

    @property
    def cases(self) -> tuple[Case, ...]:
        """The distinct cases; fewer tokens first, which usually take less memory and time."""
        pairs = {Case(n_seqs, n_input, self.n_gen) for n_input in self.inputs for n_seqs in self.batches}
        return tuple(sorted(pairs, key=lambda case: (case.n_tokens, case)))


class CaseEnded(Record):
    """The recorded outcome of one case; the steps of its decode are the samples of its series."""

    case: Case
    outcome: Outcome = Outcome.COMPLETED
    """`OUT_OF_MEMORY` also for a case that llama.cpp sized as too large, which is not tried."""
    reason: str = ""
    """Why it did not finish, in one line; empty if it did."""
    prefill_ns: int | None = None
    """Time to read the prompts of all sequences; None if the case did not complete."""
    memory_bytes: int | None = None
    """Weights, KV cache and compute buffers of the case over all devices; None if unknown."""


class SpeedCase(Record):
    """One case with its results; None if it did not complete.

    Rates are over all sequences. The whole time is that of prefill and decode, both without sampling, as in
    llama-batched-bench. On a server it is the client's, from sending the first request to receiving the last token, and
    the prefill ends when every request has its first token.
    """

    ended: CaseEnded
    prefill_ms: float | None = None
    """Time to read the prompts of all sequences."""
    latency: LatencySummary | None = None
    """Latency of a step, which gives each sequence one token; its `tok_s` is per sequence."""
    prefill_tok_s: float | None = None
    """S_PP of llama-batched-bench."""
    decode_tok_s: float | None = None
    """Throughput: generated tokens / time of the decode, S_TG of llama-batched-bench; on a server, while all requests
    generate, None if they never all do."""
    tok_s_qwen2_5: float | None = None
    """Generated tokens / whole time, as in the tables of Qwen1.5, Qwen2 and Qwen2.5."""
    tok_s_qwen3: float | None = None
    """Tokens read and generated / whole time, as in the tables of Qwen3."""

    @property
    def case(self) -> Case:
        """The measured case."""
        return self.ended.case

    @property
    def why(self) -> str:
        """Why the case has no results, in one line; empty if it has."""
        ended = self.ended
        return "" if ended.outcome is Outcome.COMPLETED else ended.outcome.because(ended.reason)


class SpeedResult(Result, Record):
    """All finished cases."""

    no_one_memory = "measured in several contexts"

    cases: tuple[SpeedCase, ...] = ()
    """Ordered by batch size, then by input length."""
    serving: ServingFigures | None = None
    """How a server answered; None if an engine on this machine ran the model."""


def result_of(run: Run) -> SpeedResult:
    return run.result_as(SpeedResult) or SpeedResult()
