"""Requirements of a pick: the workload used to rate speed, and limits."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Literal

import msgspec

from ggbench.engines.llama.config import LARGEST_N_CTX, check_padding, whole_steps
from ggbench.errors import UsageError
from ggbench.expect.loss import NOTICED_LOSS
from ggbench.expect.sessions import Conversation, known_sessions
from ggbench.record import Record
from ggbench.units import MIB, format_count, format_number

Preference = Literal["balanced", "quality", "speed", "context"]
Concern = Literal["little", "may", "noticed"]
"""How much of a loss people notice."""

LITTLE_BYTES = 300 * MIB
"""Too little to leave free: a browser's tabs and a desktop's windows take as much of a GPU."""
READING_TOK_S = 238 / 60 / 0.75
"""Tokens/s of silent reading: 238 words a minute (M. Brysbaert, Journal of Memory and Language 109, 2019), 0.75 words a
token in English."""
AGENT_TOK_S = 20.0
"""Nobody reads along: an assumption, between the 10 to 20 that guides call comfortable for code and the 30 that they
wish for."""


FIRST_WAIT_S = 60.0
"""Comfortable wait for the first prompt, which has the document or the agent's instructions."""
LAST_WAIT_S = 10.0
"""Comfortable wait for the last: before attention wanders (J. Nielsen, Usability Engineering, 1993)."""


class Needs(Record, dict=True):
    """The requirements. Raises UsageError for impossible numbers."""

    workload: Conversation = msgspec.field(default_factory=lambda: known_sessions()["chat"])
    given_n_ctx: int | None = None
    tok_s: float | None = None
    """Minimum speed of the answer; None for any."""
    max_loss: float | None = None
    """Maximum loss of weights and cache together, in nats."""
    prefer: Preference = "balanced"
    """Criterion among candidates that meet the requirements."""
    n_slots: int = 1
    """Users at once, each with this workload and context of its own."""

    def __post_init__(self) -> None:
        check_padding(self.given_n_ctx)
        if self.n_ctx_slot > LARGEST_N_CTX:
            raise UsageError(f"no context is {self.n_ctx_slot:,} tokens long", f"use at most {LARGEST_N_CTX:,}")
        for name, value in (("minimum speed", self.tok_s), ("maximum loss", self.max_loss)):
            if value is not None and not 0 <= value < math.inf:
                raise UsageError(f"the {name} cannot be {value:g}", "use a number of at least 0")

    @property
    def n_ctx(self) -> int:
        """Required context of all slots in tokens."""
        return self.n_slots * self.n_ctx_slot

    @property
    def n_ctx_slot(self) -> int:
        """Required context of one slot in tokens, a multiple of llama.cpp's padding."""
        return whole_steps(self.given_n_ctx or self.workload.n_ctx)

    @property
    def seeks_longest(self) -> bool:
        """Whether the context is still to be found: the longest."""
        return self.prefer == "context" and self.given_n_ctx is None

    @cached_property
    def session(self) -> Conversation:
        """The workload's session as the context holds it."""
        return self.workload.within(self.n_ctx_slot)

    @property
    def comfort_tok_s(self) -> float:
        """Speed from which answers are comfortable."""
        return AGENT_TOK_S if self.workload.is_agents else READING_TOK_S

    def exceeds(self, n_ctx_train: int | None) -> bool:
        """Return whether the session, or the context asked for, is longer than the model was trained for."""
        return 0 < (n_ctx_train or 0) < max(self.given_n_ctx or 0, self.session.n_tokens)

    def notices(self, nats: float) -> bool:
        """Return whether people notice a loss, or --max-loss excludes it; published losses are rounded to the limit."""
        return nats > self.max_loss if self.max_loss is not None else nats >= NOTICED_LOSS


def needs_in_brief(needs: Needs, n_ctx_train: int | None) -> str:
    """Return e.g. `chat, 8,192 tokens, at least 10.0 tok/s, KLD up to 0.050, prefers quality`; of the context no more
    than a model was trained for.
    """
    length = f"{format_count(needs.n_ctx_slot)} tokens"
    if 0 < (n_ctx_train or 0) < needs.n_ctx_slot:
        length = f"{format_count(n_ctx_train or 0)} tokens, all it was trained for"
    parts = [needs.workload.name, length]
    if needs.tok_s is not None:
        parts.append(f"at least {format_number(needs.tok_s)} tok/s")
    if needs.max_loss is not None:
        parts.append(f"KLD up to {format_number(needs.max_loss, 2)}")
    if needs.prefer != "balanced":
        parts.append(f"prefers {needs.prefer}")
    return ", ".join(parts)
