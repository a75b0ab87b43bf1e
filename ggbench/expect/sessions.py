"""Sessions: the turns of a transcript that grows in the cache, of the package or of one's own file.

A turn keeps a share of the transcript before it, reads what is new, and generates an answer.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated

import msgspec

from ggbench.engines.llama.config import LARGEST_N_CTX
from ggbench.errors import BadFile, UsageError
from ggbench.models.published import data_text, reads_data
from ggbench.record import Record
from ggbench.units import parse_tokens

_STEP = 4096
AGENTS_SHARE = 2
"""How many times what it generates an agent reads: 3.4 times in `coding`, 1.0 in `chat`, 0.1 in `documents`."""
_BLOCK = 16
MOST_TURNS = 10_000
_MOST_BYTES = 16 << 20
_Count = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_N_CTX)]


class Turn(Record):
    """What a turn reads and generates."""

    n_new: int
    """Tokens to read after what is kept, at least 1."""
    n_gen: int
    """Tokens of the answer; 0 for a prompt alone."""
    kept: float = 1.0
    """Share of the transcript before it that stays in the cache; the rest is dropped, and what is read again of it is
    among `n_new`."""

    @property
    def n_steps(self) -> int:
        """The steps that decode its answer, whose first token comes with the prompt."""
        return max(0, self.n_gen - 1)


def count_reread(n_kept: int, n_cached: int) -> int:
    """Return how many tokens of a transcript are read again, but for its last, which is never cached.

    0 for fewer than a block of vLLM's cache has.
    """
    n_lost = n_kept - 1 - n_cached
    return n_lost if n_lost >= _BLOCK else 0


class Conversation(Record, dict=True):
    """A session to take: its turns in order, on one transcript."""

    name: str
    turns: tuple[Turn, ...]
    source: str
    """Where its turns come from, for people."""

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """The tokens in the cache before each turn is read."""
        length, found = 0, list[int]()
        for turn in self.turns:
            found.append(round(turn.kept * length))
            length = found[-1] + turn.n_new + turn.n_gen
        return tuple(found)

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """The tokens in the cache after each answer."""
        each = zip(self.depths, self.turns, strict=True)
        return tuple(depth + turn.n_new + turn.n_gen for depth, turn in each)

    @cached_property
    def n_tokens(self) -> int:
        """The length of its longest transcript: the context that it takes."""
        return max(self.ends)

    @property
    def n_ctx(self) -> int:
        """The context to run it with: of a multiple of 4,096 tokens, as people set them."""
        return -(-self.n_tokens // _STEP) * _STEP

    @cached_property
    def is_agents(self) -> bool:
        """Whether turns after the first read over twice what they generate: results of tools, as no person types."""
        later = self.turns[1:]
        return sum(turn.n_new for turn in later) > AGENTS_SHARE * sum(turn.n_gen for turn in later)

    def within(self, n_ctx: int) -> Conversation:
        """Return the session with as much less to read and to generate in each turn as a context holds.

        Turns at its end go that even then do not fit, as each reads a token at least.
        """
        share = n_ctx / self.n_tokens
        if share >= 1:
            return self
        turns = tuple(
            Turn(max(1, int(share * each.n_new)), int(share * each.n_gen), each.kept) for each in self.turns
        )
        held = itertools.takewhile(lambda end: end <= n_ctx, Conversation(self.name, turns, "").ends)
        return Conversation(self.name, turns[: sum(1 for _ in held)] or turns[:1], self.source)


class _Known(msgspec.Struct, forbid_unknown_fields=True):
    source: str
    turns: list[tuple[int, int]]


@reads_data
def known_sessions() -> Mapping[str, Conversation]:
    """Return the sessions of the package by name."""
    found = msgspec.toml.decode(data_text("sessions.toml", "ggbench.expect"), type=dict[str, _Known])
    return {
        name: Conversation(name, tuple(Turn(*each) for each in known.turns), " ".join(known.source.split()))
        for name, known in found.items()
    }


class _Cached(msgspec.Struct):
    cached_tokens: _Count | None = None


class _Counts(msgspec.Struct):
    """What a line may count: as we do, as OpenAI's `usage`, or as llama-server's `timings`."""

    new: _Count | None = None
    generated: _Count | None = None
    kept: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    prompt_tokens_details: _Cached | None = None
    prompt_n: _Count | None = None
    predicted_n: _Count | None = None
    cache_n: _Count | None = None

    def turn(self, n_before: int) -> Turn | None:
        """Return the turn after a transcript of `n_before` tokens; None if this does not count one.

        Without a count of cached tokens, all of the transcript is kept that the prompt is longer than.
        """
        if self.new is not None and self.generated is not None:
            return Turn(max(1, self.new), self.generated, self.kept)
        n_new, n_gen, n_cached = self.prompt_n, self.predicted_n, self.cache_n
        if self.prompt_tokens is not None:
            details = self.prompt_tokens_details or _Cached()
            n_cached, n_gen = details.cached_tokens, self.completion_tokens
            n_cached = min(n_before if n_cached is None else n_cached, self.prompt_tokens)
            n_new = self.prompt_tokens - n_cached
        if n_new is None or n_gen is None:
            return None
        n_cached = n_before if n_cached is None else n_cached
        n_kept = min(n_cached, n_before)
        return Turn(max(1, n_new + n_cached - n_kept), n_gen, n_kept / n_before if n_before else 1.0)


class _Line(_Counts):
    timings: _Counts | None = None
    usage: _Counts | None = None


def read_session(path: Path) -> Conversation:
    """Read a session of JSON lines, one for each turn: `{"new": 800, "generated": 120, "kept": 1.0}`, or answers of
    servers with OpenAI's `usage` or llama-server's `timings`.

    Tokens that were cached by others than the turns before count as new. Raises BadFile.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise BadFile(f"{path} cannot be read: {error.strerror}") from None
    lines = [line for line in text.splitlines() if line.strip()]
    if len(text) > _MOST_BYTES or not 0 < len(lines) <= MOST_TURNS:
        raise BadFile(f"{path} has no session: 1 to {MOST_TURNS:,} turns in 16 MiB at most")
    turns, length = list[Turn](), 0
    for number, line in enumerate(lines, 1):
        turn = _turn(line, length)
        if turn is None:
            raise BadFile(
                f"{path}: line {number} is not a turn",
                'write {"new": TOKENS, "generated": TOKENS}, or OpenAI\'s usage, or llama-server\'s timings',
            )
        turns.append(turn)
        length = round(turn.kept * length) + turn.n_new + turn.n_gen
        if length > LARGEST_N_CTX:
            raise BadFile(f"{path}: after line {number} no context holds the {length:,} tokens")
    return Conversation(path.name, tuple(turns), str(path))


def _turn(line: bytes, n_before: int) -> Turn | None:
    try:
        read = msgspec.json.decode(line, type=_Line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    counts = next((each for each in (read.timings, read.usage) if each is not None), read)
    return counts.turn(n_before)


_TURN = re.compile(r"(?P<prompt>[^+@]+)\+(?P<gen>[^+@]+)(?:@(?P<depth>[^+@]+))?")


def parse_session(text: str) -> Conversation:
    """Parse the name of a session of the package, the path of a file with one, or `IN+OUT@DEPTH` in tokens, e.g.
    `2k+500@16k`: a turn after a first one that reads DEPTH tokens. Raises UsageError and BadFile.
    """
    text = text.strip()
    if named := known_sessions().get(text.lower()):
        return named
    match, path = _TURN.fullmatch(text), Path(text)
    if path.is_file():
        return read_session(path)
    if match is None:
        raise UsageError(
            f"{text!r} is not a workload",
            f"use {', '.join(known_sessions())}, the FILE of a session, or IN+OUT@DEPTH in tokens, e.g. 2k+500@16k",
        )
    turn = Turn(parse_tokens(match["prompt"]), parse_tokens(match["gen"]))
    depth = parse_tokens(match["depth"], least=0) if match["depth"] else 0
    return Conversation(text, (Turn(depth, 0), turn) if depth else (turn,), "given")
