"""Records of a search for settings that beat the defaults: candidates, times, and the gain of the best."""

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
"""Tokens of the batch that represents a prompt."""
MOST_GEN = 64
"""Maximum number of tokens timed at each depth in one measurement."""


class TuneSettings(Settings, msgspec.Struct, frozen=True):
    """Settings of a search. Raises UsageError for impossible numbers."""

    depths: Annotated[
        tuple[int, ...],
        Option(
            "--depth",
            "Compare with N tokens in the KV cache, e.g. 0,32k. The mean of all decides.",
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
    """Seconds after loading the model; no measurement is started that would end later."""
    kv_types: Annotated[
        tuple[str, ...],
        Option("--allow-kv", "Also try these KV cache types, which reduce quality, e.g. q8_0.", KV_TYPE_LIST),
    ] = ()
    """Types of both caches to try besides the setup's; they reduce quality."""
    n_prompt: Annotated[
        int, Option("-p --n-prompt", "Tokens of the prompt, with --for prefill or both.", fields.TOKENS)
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
    """A setup to try; number 0 is the baseline."""

    number: int
    setup: LlamaConfig
    """With the n_ctx of the measurements."""
    obstacle: str = ""
    """Why it is not tried, in one line; empty if it is."""
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
    """Consecutive measurements, from one of the baseline to the next."""

    stage: Stage
    round: int
    """Consecutive number, from 1."""
    timings: tuple[TuneTiming, ...]
    """The first and the last are of the baseline."""
    drift: float
    """Time of the last / time of the first."""
    is_kept: bool
    """False if the drift was too large: the measurements are discarded and repeated."""
    busy: tuple[str, ...] = ()
    """Other programs that used the CPU during a discarded segment: `python3 (pid 17, 93 % of a core)`."""


class TuneDropped(msgspec.Struct, frozen=True):
    """A candidate whose interval is entirely below the leader's."""

    candidate: int
    round: int
    leader: int
    ratio: Expected
    """Speed / the leader's, with the decisive interval."""


class TuneFailed(msgspec.Struct, frozen=True):
    """A candidate that could not be measured."""

    candidate: int
    reason: str


class TuneNoise(msgspec.Struct, frozen=True):
    """The end of a search on a machine that is too noisy to decide anything."""

    drift: float
    """The last drift, as in `TuneSegment.drift`."""
    busy: tuple[str, ...] = ()
    """Like `TuneSegment.busy`."""


class TuneTimeUp(msgspec.Struct, frozen=True):
    """The time was up before the end of the search."""

    measurement_s: float
    """Duration of one measurement of the baseline."""


class Gain(msgspec.Struct, frozen=True):
    """Speed / the baseline's at one depth; above 1 is faster."""

    n_depth: int
    decode: Expected | None = None
    """With the 95 % interval; None if no token was timed, and for the baseline itself."""
    prefill: Expected | None = None
    """The same for the prompt."""
    step_ms: float | None = None
    """Median latency of a token; None if no token was timed."""
    batch_ms: float | None = None
    """Median time of the prompt; None if no prompt was timed."""


class TunedCandidate(msgspec.Struct, frozen=True):
    """A row of the table: a candidate and its outcome."""

    number: int
    setup: LlamaConfig
    state: State
    reason: str = ""
    """Why it was dropped, failed or was left out; empty otherwise."""
    n_timed: int = 0
    """Number of valid measurements."""
    ratio: Expected | None = None
    """Speed / the baseline's in the race, as geometric mean over depths and phases; None if nothing was measured. The
    interval is that of a single candidate: the best of several is partly lucky."""
    at: tuple[Gain, ...] = ()
    """The same at each depth."""
    kv_loss: Loss | None = None


class TuneResult(Result, msgspec.Struct, frozen=True):
    """The best settings found."""

    no_one_memory: ClassVar[str] = "measured in several contexts"

    objective: Objective
    candidates: tuple[TunedCandidate, ...] = ()
    """The first is the baseline."""
    finalist: int | None = None
    """The leader of the race, whose gain was remeasured; None if none was faster."""
    ratio: Expected | None = None
    """Speed of the finalist / the baseline's from separate measurements; None if there are too few."""
    gain: tuple[Gain, ...] = ()
    """The same at each depth."""
    n_measured: int = 0
    """Number of measurements, including the baseline's and discarded ones."""
    n_discarded: int = 0
    noise: float | None = None
    """Relative standard deviation of one measurement; None if unknown."""
    unsteady: str = ""
    """Why the machine was too noisy to decide; empty if it was not."""
    cut_short: str = ""
    """Steps skipped for lack of time, and the time needed; empty if anything was proven."""

    @property
    def has_gain(self) -> bool:
        """Whether the finalist beats the baseline: the interval is entirely above 1."""
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
    """Return `flash_attn off, threads 1`; `defaults` if nothing changed."""
    return ", ".join(f"{name} {_value_text(value)}" for name, value in changed.items()) or "defaults"


def _value_text(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def result_of(run: Run) -> TuneResult:
    return run.result if isinstance(run.result, TuneResult) else TuneResult("decode")


def ratio_text(ratio: Expected | None) -> str:
    """Return `2.83 ±0.04`; an em dash if unknown."""
    return "—" if ratio is None else format_ratio(ratio.value, ratio.low, ratio.high)
