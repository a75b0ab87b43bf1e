"""A prefill: prompts of several lengths, and how long each took to read."""

from __future__ import annotations

import msgspec

from ggbench.runs.run import PromptTimings, Settings, require_positive


class PrefillSettings(Settings, msgspec.Struct, frozen=True):
    """Which prompts to read. Raises UsageError for lengths that make no prompt."""

    lengths: tuple[int, ...]
    """Tokens of each prompt."""
    repeat: int = 3
    """Timings of each length."""

    def __post_init__(self) -> None:
        for what, value in (("the repeat", self.repeat), *(("a prompt length", length) for length in self.lengths)):
            require_positive(what, value)

    @property
    def n_ctx_needed(self) -> int:
        """Tokens of the longest prompt."""
        return max(self.lengths)


class PrefillResult(PromptTimings, frozen=True):
    """Time to read a prompt against its length."""
