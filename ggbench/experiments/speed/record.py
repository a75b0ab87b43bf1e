"""Speed by input length and batch size, as defined by the published tables: the settings, and the result of each
case.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from msgspec import field

from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import whole_steps
from ggbench.errors import UsageError
from ggbench.fields import BATCH_SIZES, DURATION, MOST_SLOTS, TOKEN_LIST, TOKENS, Option
from ggbench.runs.run import Result, Run, Settings, require_positive
from ggbench.stats.decode_timing import DecodeLimit, LatencySummary, LineFit, ServingFigures, b_ratio, w_ratio
from ggbench.stats.requests import RequestRates

INPUTS = (1, 6144, 14336, 30720, 63488, 129024)
"""Input lengths of the tables of Qwen1.5, Qwen2, Qwen2.5 and Qwen3."""
N_GEN = 2048
"""Tokens generated in those tables."""
WITHIN_S = 600.0


class Case(msgspec.Struct, frozen=True, order=True):
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

    @property
    def n_ctx(self) -> int:
        """The smallest sufficient context: each sequence is padded to llama.cpp's steps."""
        return self.n_seqs * whole_steps(self.n_input + self.n_gen)


class SpeedSettings(Settings, msgspec.Struct, frozen=True):
    """The cases to measure: every input length with every batch size. Raises UsageError for impossible numbers."""

    inputs: Annotated[tuple[int, ...], Option("--inputs", "Input lengths in tokens, e.g. 1,512,6k.", TOKEN_LIST)] = (
        INPUTS
    )
    n_gen: Annotated[
        int,
        Option(
            "-n --n-gen",
            "Tokens to generate for each sequence, past any end of generation.",
            TOKENS,
            name="n",
        ),
    ] = N_GEN
    batches: Annotated[
        tuple[int, ...],
        Option(
            "-np --batch --parallel",
            f"Numbers of sequences generated at once, one for each user, e.g. 1,8,32; at most {MOST_SLOTS}.",
            BATCH_SIZES,
            name="batch",
        ),
    ] = (1,)
    """Batch sizes, in sequences."""
    within_s: Annotated[
        float | None,
        Option(
            "--within",
            "Total time, e.g. 1h; cases that would exceed it are skipped. Default: 10m (asks first in a terminal).",
            DURATION,
            shown="",
        ),
    ] = WITHIN_S
    """Time for all cases together: a case that would take longer than the time left is skipped; None for no limit."""

    def __post_init__(self) -> None:
        if not self.inputs or not self.batches:
            raise UsageError("there is nothing to measure", "use at least one input length and one batch size")
        counts = [("the number of tokens to generate", self.n_gen)]
        counts += [("an input length", each) for each in self.inputs]
        counts += [("a batch size", each) for each in self.batches]
        for what, value in counts:
            require_positive(what, value)
        largest = max(self.batches)
        if largest > MOST_SLOTS:
            raise UsageError(
                f"a batch of {largest:,} sequences is more than llama.cpp supports", f"use at most {MOST_SLOTS}"
            )

    @property
    def n_longest(self) -> int:
        return max(self.inputs) + self.n_gen

    @property
    def cases(self) -> tuple[Case, ...]:
        """The distinct cases; fewer tokens first, which usually take less memory and time."""
        pairs = {Case(n_seqs, n_input, self.n_gen) for n_input in self.inputs for n_seqs in self.batches}
        return tuple(sorted(pairs, key=lambda case: (case.n_tokens, case)))


class CaseMemory(msgspec.Struct, frozen=True):
    """Bytes of weights, KV cache and compute buffers of one case over all devices, including logits.

    For a case that did not run, as sized by llama.cpp's allocator run dry.
    """

    weight_bytes: int
    """Each tensor is counted once."""
    kv_bytes: int
    compute_bytes: int
    """Including the output buffer."""

    @property
    def total_bytes(self) -> int:
        """Weights, KV cache and compute buffers together."""
        return self.weight_bytes + self.kv_bytes + self.compute_bytes


class CaseEnded(msgspec.Struct, frozen=True):
    """The recorded outcome of one case; the steps of its decode are the samples of its series."""

    case: Case
    outcome: Outcome = Outcome.COMPLETED
    """`OUT_OF_MEMORY` also for a case not tried because it would not fit, `SKIPPED` for one that would take too long.
    """
    reason: str = ""
    """Why it did not finish, in one line; empty if it did."""
    expected_s: float | None = None
    """Forecast of prefill and decode made before the run; None if nothing had run until then."""
    prefill_ns: int | None = None
    """Time to read the prompts of all sequences; None if they were not read."""
    sampler_ns: int | None = None
    """Time to sample the first token."""
    memory: CaseMemory | None = None
    """None if unknown."""
    peak_bytes: int | None = None
    """Peak resident memory of the engine's process so far; None if the case did not run."""
    gpu_bytes: int | None = None
    """Peak GPU memory of the engine's process during the case, by NVML; None without a GPU."""


class BatchLimit(msgspec.Struct, frozen=True):
    """Return the bandwidth bound of decoding several sequences: each step reads the weights once and every cache."""

    n_seqs: int
    limit: DecodeLimit


class SpeedCase(msgspec.Struct, frozen=True):
    """One case with its results; None if it did not run.

    Rates are over all sequences. The whole time is that of prefill and decode, both without sampling, as in
    llama-batched-bench. On a server it is the client's, from sending the first request to receiving the last token, and
    the prefill ends when every request has its first token.
    """

    ended: CaseEnded
    prefill_ms: float | None = None
    """Time to read the prompts of all sequences."""
    ttft_ms: float | None = None
    """Time to first token: the prefill, plus sampling the first token from its logits."""
    decode_ms: float | None = None
    """All steps."""
    latency: LatencySummary | None = None
    """Latency of a step, which gives each sequence one token; its `tok_s` is per sequence."""
    token_ms: float | None = None
    """Mean time between two tokens of one sequence, i.e. the mean step, as in bitsandbytes' tables."""
    prefill_tok_s: float | None = None
    """S_PP of llama-batched-bench."""
    decode_tok_s: float | None = None
    """Throughput: generated tokens / time of the decode, S_TG of llama-batched-bench; on a server, while all requests
    generate, None if they never all do."""
    tok_s_qwen2_5: float | None = None
    """Generated tokens / whole time, as in the tables of Qwen1.5, Qwen2 and Qwen2.5."""
    tok_s_qwen3: float | None = None
    """Tokens read and generated / whole time, as in the tables of Qwen3."""
    gain: float | None = None
    """Throughput / that of batch 1 at the same input length; None if that did not run."""
    requests: RequestRates | None = None
    """None if an engine on this machine ran it."""
    exceeds_training: bool = False
    """Whether its positions exceed the training context."""

    @property
    def case(self) -> Case:
        """The measured case."""
        return self.ended.case

    @property
    def tok_s_each(self) -> float | None:
        """Tokens/s that one of the sequences gets while all generate: of a server, the median over its requests."""
        found = self.requests or self.latency
        return None if found is None else found.tok_s

    @property
    def seconds(self) -> float | None:
        """The whole time; None if the case did not complete."""
        return None if self.prefill_ms is None or self.decode_ms is None else (self.prefill_ms + self.decode_ms) / 1e3


class BatchLine(msgspec.Struct, frozen=True):
    """W and B of one batch size, fitted over the steps of all its cases."""

    n_seqs: int
    fit: LineFit | None
    limit: DecodeLimit | None
    """The limit for this batch size; None if unknown."""

    @property
    def w_ratio(self) -> float | None:
        """Measured W / limit of W: the share of the memory bandwidth (MBU); 1.0 is the physical limit."""
        return w_ratio(self.fit, self.limit)

    @property
    def b_ratio(self) -> float | None:
        """Limit of B / measured B: the share of the memory bandwidth (MBU); 1.0 is the physical limit."""
        return b_ratio(self.fit, self.limit)


class SpeedResult(Result, msgspec.Struct, frozen=True):
    """All finished cases, and latency against position for each batch size."""

    no_one_memory: ClassVar[str] = "measured in several contexts"

    cases: tuple[SpeedCase, ...] = ()
    """Ordered by batch size, then by input length."""
    lines: tuple[BatchLine, ...] = field(default=())
    """One for each batch size with a timed step."""
    serving: ServingFigures | None = None
    """How a server answered; None if an engine on this machine ran the model."""


_BEYOND = "beyond the model's training context"


def result_of(run: Run) -> SpeedResult:
    return run.result if isinstance(run.result, SpeedResult) else SpeedResult()


def case_note(found: SpeedCase) -> str:
    """Return why a case has no results, and caveats on those it has; empty without either."""
    ended = found.ended
    why = "" if ended.outcome is Outcome.COMPLETED else ended.outcome.because(ended.reason)
    if ended.outcome is Outcome.SKIPPED and ended.memory is not None:
        why += "; the memory is planned"
    return "; ".join(filter(None, (why, _BEYOND if found.exceeds_training else "")))
