"""A chat: how many turns, and what each took."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ggbench.fields import COUNT, Option
from ggbench.runs.run import Result, Settings


class ChatSettings(Settings, msgspec.Struct, frozen=True):
    """How long to chat."""

    turns: Annotated[int, Option("--turns", "Number of turns.", COUNT)] = 2
    n_answer: int = 50
    """Tokens of each answer."""

    @property
    def n_ctx_needed(self) -> int:
        """Tokens of the longest question and its answer."""
        return 32 * self.turns + self.n_answer


class Turn(msgspec.Struct, frozen=True):
    """One question with its answer; an observation."""

    number: int
    n_question: int
    token_ms: float


class ChatResult(Result, msgspec.Struct, frozen=True):
    """What the turns took."""

    turns: tuple[Turn, ...] = ()

    @property
    def token_ms(self) -> float | None:
        return sum(each.token_ms for each in self.turns) / len(self.turns) if self.turns else None
