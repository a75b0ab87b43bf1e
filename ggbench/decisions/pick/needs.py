"""Requirements of a pick: the workload used to rate speed, and limits."""

from __future__ import annotations

import math
import re
from typing import Literal

from msgspec.structs import replace

from ggbench.engines.llama.config import LARGEST_N_CTX, whole_steps
from ggbench.errors import UsageError
from ggbench.expect.loss import NOTICED_LOSS
from ggbench.record import Record
from ggbench.units import MIB, format_count, format_number, parse_tokens

Preference = Literal["balanced", "quality", "speed", "context"]
Concern = Literal["little", "may", "noticed"]
"""How much of a loss people notice."""

LITTLE_BYTES = 300 * MIB
"""Too little to leave free: a browser's tabs and a desktop's windows take as much of a GPU."""
READING_TOK_S = 238 / 60 / 0.75
"""Tokens/s of silent reading: 238 words a minute (M. Brysbaert, Journal of Memory and Language 109, 2019), 0.75 words a
token in English."""
_AGENT_TOK_S = 20.0
"""Nobody reads along: an assumption, between the 10 to 20 that guides call comfortable for code and the 30 that they
wish for."""
_ATTENTION_S = 10.0
"""Wait before attention wanders: J. Nielsen, Usability Engineering, 1993."""


class ChatTurn(Record):
    """A turn: a prompt read after some context, and its answer."""

    name: str
    n_prompt: int
    n_gen: int
    n_depth: int
    """Tokens in the KV cache before the prompt."""
    n_ctx_least: int = 0
    """Tokens of context unless --need-ctx is given."""
    comfort_tok_s: float = READING_TOK_S
    """Speed from which an answer is comfortable."""
    comfort_wait_s: float = 60.0
    """Seconds for a prompt that are comfortable."""

    @property
    def comfort_turn_s(self) -> float:
        """Seconds that a comfortable turn takes at most."""
        return self.comfort_wait_s + self.n_gen / self.comfort_tok_s

    @property
    def n_middle(self) -> int:
        """Tokens in the middle of its answer, where its speed is taken."""
        return self.n_depth + self.n_prompt + self.n_gen // 2

    @property
    def n_turn(self) -> int:
        return self.n_prompt + self.n_gen


WORKLOADS = {
    each.name: each
    for each in (
        ChatTurn("chat", 512, 300, 4096, 8192, comfort_wait_s=_ATTENTION_S),
        ChatTurn("coding", 8192, 600, 32768, 65536, comfort_tok_s=_AGENT_TOK_S),
        ChatTurn("agent", 16384, 800, 49152, 131072, comfort_tok_s=_AGENT_TOK_S),
        ChatTurn("documents", 30720, 500, 0, 32768),
    )
}
"""`coding` is a tenth of what a session of a coding agent reads and writes, half-way through its context: 80,000 and
5,800 tokens, the mean of 397 sessions of Claude Code (bitsandbytes, its analysis of tokens), in the 64k that such tools
ask for at least (ollama.com/blog/claude).
"""


class Needs(Record):
    """The requirements. Raises UsageError for impossible numbers."""

    workload: ChatTurn = WORKLOADS["chat"]
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
        own = self.workload
        return whole_steps(self.given_n_ctx or own.n_ctx_least or own.n_depth + own.n_turn)

    @property
    def turn(self) -> ChatTurn:
        """The workload's turn as the context holds it: after fewer tokens, then with a shorter prompt and answer."""
        own, n_ctx = self.workload, self.n_ctx_slot
        n_prompt = min(own.n_prompt, n_ctx * own.n_prompt // own.n_turn)
        n_gen = min(own.n_gen, n_ctx - n_prompt)
        return replace(own, n_prompt=n_prompt, n_gen=n_gen, n_depth=min(own.n_depth, n_ctx - n_prompt - n_gen))

    def exceeds(self, n_ctx_train: int | None) -> bool:
        """Return whether a turn, or the context asked for, is longer than the model was trained for."""
        turn = self.turn
        return 0 < (n_ctx_train or 0) < max(self.given_n_ctx or 0, turn.n_depth + turn.n_turn)

    def notices(self, nats: float) -> bool:
        """Return whether people notice a loss, or --max-loss excludes it; published losses are rounded to the limit."""
        return nats > self.max_loss if self.max_loss is not None else nats >= NOTICED_LOSS


_TURN = re.compile(r"(?P<prompt>[^+@]+)\+(?P<gen>[^+@]+)(?:@(?P<depth>[^+@]+))?")


def parse_workload(text: str) -> ChatTurn:
    """Parse the name of a workload, or `IN+OUT@DEPTH` in tokens, e.g. `2k+500@16k`. Raises UsageError."""
    if named := WORKLOADS.get(text.strip().lower()):
        return named
    match = _TURN.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"{text!r} is not a workload",
            f"use {', '.join(WORKLOADS)}, or IN+OUT@DEPTH in tokens, e.g. 2k+500@16k",
        )
    n_prompt, n_gen = parse_tokens(match["prompt"]), parse_tokens(match["gen"])
    n_depth = parse_tokens(match["depth"], least=0) if match["depth"] else 0
    return ChatTurn(text.strip(), n_prompt, n_gen, n_depth)


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
