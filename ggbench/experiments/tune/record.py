"""A search for settings that beat the defaults: the candidates, their times, and the gain of the best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import msgspec

from ggbench import fields
from ggbench.decisions.pick.record import Loss
from ggbench.engines.llama.config import KV_TYPE_LIST, LlamaConfig
from ggbench.errors import UsageError
from ggbench.fields import Option
from ggbench.runs.run import Result, Run, Settings
from ggbench.stats.intervals import Expected
from ggbench.units import format_ratio

Objective = Literal["decode", "prefill", "both"]
Stage = Literal["race", "proof"]
State = Literal["baseline", "best", "raced", "dropped", "failed", "left out"]

DEPTHS = (0, 8192)
WITHIN_S = 600.0
N_PROMPT = 512
"""Tokens of the batch that stands for a prompt."""
MOST_GEN = 64
"""Tokens that one measurement times at most at each depth."""


class TuneSettings(Settings, msgspec.Struct, frozen=True):
    """Where and for how long to search. Raises UsageError for numbers that make no search."""

    depths: Annotated[
        tuple[int, ...],
        Option(
            "--depth",
            "Tokens in the KV cache at which to compare, e.g. 0,32k. The mean of all decides.",
            fields.DEPTH_LIST,
        ),
    ] = DEPTHS
    """Tokens in the KV cache before the timed part."""
    objective: Annotated[
        Objective,
        Option("--for", "What to speed up: decode, prefill, or the mean of both.", fields.CHOICE),
    ] = "decode"
    within_s: Annotated[
        float, Option("--within", "Stop the search after this time, e.g. 5m.", fields.DURATION, shown="10m")
    ] = WITHIN_S
    """Seconds from loading the model on; a download takes none of them. No measurement begins that would end later."""
    kv_types: Annotated[
        tuple[str, ...],
        Option("--allow-kv", "Also try these KV cache types, which reduce quality, e.g. q8_0.", KV_TYPE_LIST),
    ] = ()
    """Types of both caches that may be tried besides those of the setup; they cost quality."""
    n_prompt: Annotated[
        int, Option("-p --n-prompt", "With --for prefill or both: tokens of the prompt.", fields.TOKENS)
    ] = N_PROMPT

    def __post_init__(self) -> None:
        if not self.depths or min(self.depths) < 0:
            raise UsageError("a search needs depths of 0 or more", "use e.g. --depth 0,8192")
        if self.within_s <= 0:
            raise UsageError("no time to search", "use e.g. --within 10m")
        if self.n_prompt < 2:
            raise UsageError("a prompt needs at least 2 tokens", "use 2 or more")

    @property
    def n_ctx_needed(self) -> int:
        """Tokens in the cache at the end of the deepest measurement."""
        return max(*self.depths, 1) + MOST_GEN + 2 + (self.n_prompt if self.objective != "decode" else 0)


class TuneCandidate(msgspec.Struct, frozen=True):
    """A setup that may be tried; number 0 is the baseline."""

    number: int
    setup: LlamaConfig
    """With the n_ctx of the measurements."""
    obstacle: str = ""
    """Reason that it is not tried, in one line; empty if it is."""
    kv_loss: Loss | None = None
    """Quality loss of its KV cache, if a quality run measured it."""


class DepthTiming(msgspec.Struct, frozen=True):
    """Times of one measurement at one depth."""

    n_depth: int
    step_ns: float | None = None
    """Median latency of the decoded tokens; None if no token was timed."""
    batch_ns: int | None = None
    """Time of the prompt; None if no prompt was timed."""

    @property
    def times_ns(self) -> tuple[float, ...]:
        return tuple(each for each in (self.step_ns, self.batch_ns) if each is not None)


class TuneTiming(msgspec.Struct, frozen=True):
    """One measurement of one candidate."""

    candidate: int
    at: tuple[DepthTiming, ...]


class TuneSegment(msgspec.Struct, frozen=True):
    """Consecutive measurements from one of the baseline to the next."""

    stage: Stage
    round: int
    """From 1, counted through."""
    timings: tuple[TuneTiming, ...]
    """The first and the last are of the baseline."""
    drift: float
    """How many times as long the last took as the first."""
    is_kept: bool
    """False where the drift was too large: the measurements count for nothing and are repeated."""
    busy: tuple[str, ...] = ()
    """Other programs that computed meanwhile, of a segment that is not kept: `python3 (pid 17, 93 % of a core)`."""


class TuneDropped(msgspec.Struct, frozen=True):
    """A candidate whose interval lies wholly below the leader's."""

    candidate: int
    round: int
    leader: int
    ratio: Expected
    """Speed relative to the leader's, with the interval that decided."""


class TuneFailed(msgspec.Struct, frozen=True):
    """A candidate that could not be measured."""

    candidate: int
    reason: str


class TuneNoise(msgspec.Struct, frozen=True):
    """The end of a search on a machine that is too noisy to decide anything."""

    drift: float
    """The last, as `TuneSegment.drift`."""
    busy: tuple[str, ...] = ()
    """The same as `TuneSegment.busy`."""


class TuneTimeUp(msgspec.Struct, frozen=True):
    """The time was over before the search had ended."""

    measurement_s: float
    """Duration of one measurement of the baseline."""


class Gain(msgspec.Struct, frozen=True):
    """Speed over that of the baseline at one depth: above 1 is faster."""

    n_depth: int
    decode: Expected | None = None
    """With the 95 % interval; None if no token was timed, and of the baseline itself."""
    prefill: Expected | None = None
    """The same for the prompt."""
    step_ms: float | None = None
    """Median latency of a token; None if no token was timed."""
    batch_ms: float | None = None
    """Median time of the prompt; None if no prompt was timed."""


class TunedCandidate(msgspec.Struct, frozen=True):
    """One line of the table: a candidate, and what became of it."""

    number: int
    setup: LlamaConfig
    state: State
    reason: str = ""
    """Reason that it was dropped, failed or left out; empty otherwise."""
    n_timed: int = 0
    """Measurements that count."""
    ratio: Expected | None = None
    """Speed over the baseline's, the geometric mean over depths and phases, as the race saw it; None if nothing was
    measured. The interval is that of one candidate alone: the best of several is better by chance."""
    at: tuple[Gain, ...] = ()
    """The same at each depth."""
    kv_loss: Loss | None = None


class TuneResult(Result, msgspec.Struct, frozen=True):
    """The best settings that were found."""

    no_one_memory: ClassVar[str] = "measured in several contexts"

    objective: Objective
    candidates: tuple[TunedCandidate, ...] = ()
    """The first is the baseline."""
    finalist: int | None = None
    """The candidate that led the race, and whose gain was measured again; None if none was faster."""
    ratio: Expected | None = None
    """Speed of the finalist over the baseline's from measurements that had no part in choosing it; None if there are
    too few."""
    gain: tuple[Gain, ...] = ()
    """The same at each depth."""
    n_measured: int = 0
    """Measurements, those of the baseline and those that were discarded included."""
    n_discarded: int = 0
    noise: float | None = None
    """Standard deviation of one measurement, as a share of it; None if unknown."""
    unsteady: str = ""
    """Reason that the machine was too noisy to decide; empty if it was not."""
    cut_short: str = ""
    """Steps that the time was too short for, and the time needed; empty if anything was proven."""

    @property
    def has_gain(self) -> bool:
        """Whether the finalist beats the baseline: the interval lies wholly above 1."""
        return self.ratio is not None and self.ratio.low > 1

    @property
    def best(self) -> TunedCandidate | None:
        """The settings to use; None if none beats the defaults."""
        return self.candidate(self.finalist) if self.has_gain else None

    def candidate(self, number: int | None) -> TunedCandidate | None:
        return next((each for each in self.candidates if each.number == number), None)

    def changes(self, candidate: TunedCandidate) -> dict[str, object]:
        """Settings in which a candidate differs from the baseline, by llama.cpp's names."""
        return changes(self.candidates[0].setup, candidate.setup)


def changes(baseline: LlamaConfig, setup: LlamaConfig) -> dict[str, object]:
    return {
        name: getattr(setup, name)
        for name in LlamaConfig.__struct_fields__
        if getattr(setup, name) != getattr(baseline, name)
    }


def changes_text(changed: Mapping[str, object]) -> str:
    """`flash_attn off, threads 1`; `defaults` of no change."""
    return ", ".join(f"{name} {_value_text(value)}" for name, value in changed.items()) or "defaults"


def _value_text(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def result_of(run: Run) -> TuneResult:
    return run.result if isinstance(run.result, TuneResult) else TuneResult("decode")


def ratio_text(ratio: Expected | None) -> str:
    """Return `2.83 ±0.04`; an em dash for unknown."""
    return "—" if ratio is None else format_ratio(ratio.value, ratio.low, ratio.high)
