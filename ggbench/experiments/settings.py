"""What a trial measures, checked before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ggbench.catalog.selector import Target
from ggbench.errors import UsageError
from ggbench.experiments.command import reproduce
from ggbench.records import KV_CELLS, LARGEST_N_CTX, N_PROMPT, Bandwidth, LoadConfig
from ggbench.units import format_count


@dataclass(frozen=True, slots=True)
class TrialSettings:
    """What is measured of each quant. Raises UsageError for what cannot be."""

    kind: Literal["decode", "prefill", "bench"]
    config: LoadConfig = field(default_factory=LoadConfig)
    n_prompt: int = N_PROMPT
    n_gen: int = 0
    """Tokens to decode; 0 times prompts only."""
    repeat: int = 1
    prefill_lengths: tuple[int, ...] = ()
    n_warmup: int = 8
    """Tokens decoded before anything is timed."""

    def __post_init__(self) -> None:
        if self.n_gen < 0 or self.n_warmup < 0:
            raise UsageError("a number of tokens to decode is negative", "give 1 or more")
        for what, value in (("the repeat", self.repeat), *(("a prompt length", length) for length in self._lengths)):
            if value < 1:
                raise UsageError(f"{what} is {value}", "it has to be at least 1")
        if self.config.n_ctx is not None and self.config.n_ctx < self.n_ctx_needed:
            raise UsageError(
                f"n_ctx {self.config.n_ctx} does not hold the {self.n_ctx_needed} tokens of this run",
                "leave --n-ctx out to take just enough, or measure fewer tokens",
            )
        if self.n_ctx > LARGEST_N_CTX:
            raise UsageError(
                f"this run takes an n_ctx of {format_count(self.n_ctx)}, and llama.cpp has none above "
                f"{format_count(LARGEST_N_CTX)}",
                "measure fewer tokens" if self.config.n_ctx is None else "give a smaller --n-ctx",
            )

    @property
    def n_ctx_needed(self) -> int:
        """Tokens that the run puts into the KV cache at most."""
        decoded = self.n_prompt + max(self.n_gen, self.n_warmup) if self.n_gen else 0
        return max((decoded, *self._lengths))

    @property
    def n_ctx(self) -> int:
        """The context to ask for: as given, else just enough in whole steps of llama.cpp's padding."""
        return self.config.n_ctx or -(-self.n_ctx_needed // KV_CELLS) * KV_CELLS

    @property
    def _lengths(self) -> tuple[int, ...]:
        return (self.n_prompt, *self.prefill_lengths) if self.n_gen else self.prefill_lengths

    def command_for(self, target: Target, bandwidth: Bandwidth | None = None) -> str:
        """The line that measures this target again, from any folder; `bandwidth` is the person's own figure."""
        is_local = target.path is not None and target.provenance != "hub"
        named = (str(target.path.absolute()),) if is_local and target.path else target.named
        given = {} if bandwidth is None else {"bandwidth": f"{bandwidth.bytes_per_s / 1e9:.10g}GB/s"}
        if self.n_gen:
            repeat = {"repeat": self.repeat} if self.repeat > 1 else {}
            return reproduce("decode", named, self.config, {"n": self.n_gen, **repeat, **given})
        options = {"lengths": ",".join(map(str, self.prefill_lengths)), "repeat": self.repeat, **given}
        return reproduce("prefill", named, self.config, options)
