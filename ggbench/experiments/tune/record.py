"""Records of a search for settings that beat the defaults: what to time, the candidates, and the gain of the best."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ggbench import fields
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.flags import load_flags
from ggbench.errors import UsageError
from ggbench.fields import Option
from ggbench.record import Record
from ggbench.runs.run import Result, Run, Settings
from ggbench.show.words import say
from ggbench.stats.intervals import Estimate
from ggbench.units import format_ratio

BASELINE = 0
"""Index of the defaults among the candidates."""
MOST_GEN = 64
"""Maximum number of tokens timed at each depth in one measurement."""


class TuneSettings(Settings, Record):
    """Settings of a search. Raises UsageError for impossible numbers."""

    depths: Annotated[
        tuple[int, ...],
        Option(
            "--depth",
            "Compare at these depths, e.g. 0,32k. Tokens in the KV cache; the mean of all decides.",
            fields.DEPTH_LIST,
        ),
    ] = (0, 8192)
    """Tokens in the KV cache before the timed part."""
    objective: Annotated[
        Literal["decode", "prefill", "both"],
        Option("--for", "What to speed up; both for the mean of them.", fields.CHOICE),
    ] = "decode"
    within_s: Annotated[
        float,
        Option("--within", "Start no further turn after this time, e.g. 5m.", fields.DURATION, shown="10m"),
    ] = 600.0
    """Seconds after loading the model; the first round may take half of them, and each has its fewest turns."""
    n_prompt: Annotated[
        int, Option("-p --n-prompt", "Tokens of the prompt. With --for prefill or both.", fields.TOKENS)
    ] = 512

    def __post_init__(self) -> None:
        if self.within_s <= 0:
            raise UsageError("no time to search", "use e.g. --within 10m")
        if self.n_prompt < 2:
            raise UsageError("a prompt needs at least 2 tokens", "use 2 or more")

    @property
    def n_batch(self) -> int:
        """Tokens of the prompt read at each depth; 0 for none."""
        return 0 if self.objective == "decode" else self.n_prompt

    @property
    def n_ctx_needed(self) -> int:
        """Tokens in the cache at the end of the deepest measurement."""
        return max(*self.depths, 1) + MOST_GEN + 2 + self.n_batch

    @property
    def timed(self) -> list[str]:
        """Name of each time of a measurement, in order: `decode at 8192`."""
        phases = ("decode", "prefill") if self.objective == "both" else (self.objective,)
        return [f"{phase} at {depth}" for depth in self.depths for phase in phases]


class TuneTiming(Record):
    """One measurement of one candidate."""

    candidate: int
    """Its index; that of the defaults is 0."""
    round: int
    """1 chooses a candidate; 2 measures the defaults and that candidate again."""
    turn: int
    """Number in the round, from 0."""
    times_ns: tuple[float, ...] = ()
    """Times as `TuneSettings.timed` names them: medians of decoded tokens, and whole prompts; empty if it failed."""
    failure: str = ""
    """Why it failed, in one line; empty if it did not."""


class TuneCandidate(Record):
    """A setup and what the first round found of it; the first of all is that of the defaults."""

    setup: LlamaConfig
    """With the n_ctx of the measurements."""
    reason: str = ""
    """Why it was not measured, or failed, in one line; empty otherwise."""
    speed: float | None = None
    """Speed / the defaults' in the first round, as geometric mean over turns, depths and phases; None if unknown."""
    times_ms: tuple[float, ...] = ()
    """Medians over the first round's turns, as `TuneSettings.timed` names them; empty if nothing was measured."""


class TuneResult(Result, Record):
    """The best settings found."""

    no_one_memory = "measured in several contexts"

    candidates: tuple[TuneCandidate, ...] = ()
    finalist: int | None = None
    """Index of the fastest candidate of the first round; None if none was faster than the defaults."""
    ratio: Estimate | None = None
    """Speed of the finalist / the defaults' in the second round, with its interval; None for fewer than 4 turns."""

    @property
    def was_timed(self) -> bool:
        """Whether anything was measured, or a gain is known from a run of an earlier ggbench."""
        return self.ratio is not None or any(each.times_ms for each in self.candidates)

    @property
    def has_gain(self) -> bool:
        """Whether the finalist beats the defaults: the interval is entirely above 1."""
        return self.ratio is not None and self.ratio.low > 1

    def options(self, index: int) -> str:
        """Return a candidate's change to the defaults as llama-server's options: `-fa off`; `defaults` for none."""
        defaults, own = (msgspec.structs.asdict(self.candidates[each].setup) for each in (BASELINE, index))
        changes = {name: value for name, value in own.items() if value != defaults[name]}
        return " ".join(load_flags(msgspec.convert(changes, LlamaConfig), on_gpu=False)) or "defaults"

    @property
    def answer(self) -> str:
        """`-fa off is 2.83 ±0.04 times as fast as the defaults.`, or that no gain was found."""
        if not self.was_timed:
            return say("tune.untimed")
        if self.finalist is None or self.ratio is None:
            return say("tune.none")
        ratio = format_ratio(self.ratio.value, self.ratio.low, self.ratio.high)
        return say(
            "tune.gain" if self.has_gain else "tune.no_gain", options=self.options(self.finalist), ratio=ratio
        )


def result_of(run: Run) -> TuneResult:
    return run.result_as(TuneResult) or TuneResult()
