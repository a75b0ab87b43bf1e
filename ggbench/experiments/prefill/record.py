"""A prefill: prompts of several lengths, and the time to read each."""

from __future__ import annotations

from typing import Annotated

from ggbench.fields import COUNT, TOKEN_LIST, Option
from ggbench.record import Record
from ggbench.runs.run import PromptTimings, Settings, require_positive


class PrefillSettings(Settings, Record):
    """The prompts to read. Raises UsageError for impossible lengths."""

    lengths: Annotated[
        tuple[int, ...],
        Option("--lengths", "Prompt lengths in tokens, e.g. 512,2k,16k.", TOKEN_LIST, is_always_stated=True),
    ] = (1, 25, 128, 512, 2048)
    """Tokens of each prompt."""
    repeat: Annotated[int, Option("-r --repeat", "Time each length N times.", COUNT, is_always_stated=True)] = 3
    """Timings of each length."""

    def __post_init__(self) -> None:
        for what, value in (
            ("the repeat", self.repeat),
            *(("a prompt length", length) for length in self.lengths),
        ):
            require_positive(what, value)

    @property
    def n_ctx_needed(self) -> int:
        """Tokens of the longest prompt."""
        return max(self.lengths)


class PrefillResult(PromptTimings):
    """Time to read a prompt against its length."""
