"""One generation as it arrives: its tokens' times by the server's clock or the client's, and what was not as asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec.structs import asdict

from ggbench.engines.contract import FLUSH_NS
from ggbench.engines.events import Event, ReadingPrompts, RequestEnded, Steps, TokensTogether
from ggbench.engines.http.messages import Arrival, Generate, Piece
from ggbench.errors import GgbenchError
from ggbench.stats.decode_timing import Clock, RequestTiming, TokenChunks
from ggbench.text import shorten

_CHUNKS_EVERY_NS = 1_000_000_000
"""Minimum interval between reports of chunks, as each is a record in the store."""


@dataclass(slots=True)
class StreamedRequest:
    """What arrived of one request, and what of it is not yet reported."""

    asked: Generate
    clock: Clock
    seq: int | None = None
    origin_ns: int = 0
    """Time at which the first request of the batch was sent, by the client's clock."""
    error: GgbenchError | None = None
    said: Piece = field(default_factory=Piece)
    """The last that the server said of each."""
    text: str = ""
    """The tokens not yet reported, as text."""
    sent_ns: int | None = None
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    n_tokens: int = 0
    """Tokens, or chunks if the server does not count its tokens."""
    _is_counted: bool = True
    _n_together: int = 0
    _has_clock: bool = True
    """Whether the server's clock is trusted: no more after one impossible value."""
    _decode_ns: int = 0
    """The server's clock at the last token."""
    _clock_ns: int = 0
    """Time of the last timed token: by the server's clock from the first token, or by the client's."""
    _n_timed: int = 0
    """Number of tokens up to that one."""
    _steps: list[int] = field(default_factory=list)
    _steps_from: int = 0
    """Position of the first of `_steps`."""
    _ended_steps: list[Steps] = field(default_factory=list)
    """Steps before a chunk."""
    _chunks: list[tuple[int, int, int]] = field(default_factory=list)
    """Position of the first token, tokens and time of each."""
    _flushed_ns: int = 0
    _chunks_flushed_ns: int = 0

    @property
    def n_prompt(self) -> int:
        return self.asked.prompt.n_tokens

    def take(self, arrival: Arrival) -> Iterator[Event]:
        at_ns, piece = arrival.at_ns, arrival.piece
        self.error = arrival.error
        if piece is None:
            if self.error is None:
                self.sent_ns = self._flushed_ns = self._chunks_flushed_ns = at_ns
            return
        if piece.n_read is not None:
            yield ReadingPrompts(min(1.0, piece.n_read / max(1, self.n_prompt)))
            return
        known = {name: value for name, value in asdict(piece).items() if value is not None}
        self.said = Piece(**asdict(self.said) | known)
        if piece.text or arrival.n_tokens:
            self._take_tokens(piece, arrival.n_tokens, at_ns)
        if at_ns - self._flushed_ns > FLUSH_NS:
            self._flushed_ns = at_ns
            yield from self._flush_steps()
        if at_ns - self._chunks_flushed_ns > _CHUNKS_EVERY_NS:
            self._chunks_flushed_ns = at_ns
            yield from self._flush_chunks()

    def finish(self) -> Iterator[Event]:
        """Report the rest, whether the stream ended or was abandoned."""
        yield from self._flush_steps()
        yield from self._flush_chunks()
        yield RequestEnded(self.timing, self.seq)

    @property
    def timing(self) -> RequestTiming:
        said, n_tokens = self.said, self.n_tokens
        if not self._is_counted and said.n_gen is not None:
            n_tokens = said.n_gen
        return RequestTiming(
            n_prompt=self.n_prompt,
            n_gen=self.asked.n_gen,
            sent_ns=self._since(self.sent_ns) or 0,
            clock=self.clock,
            first_token_ns=self._since(self.first_token_ns),
            last_token_ns=self._since(self.last_token_ns),
            n_prompt_counted=said.n_prompt,
            n_tokens=n_tokens,
            n_tokens_together=self._n_together,
            n_drafted=said.n_drafted,
            n_accepted=said.n_accepted,
            is_exact=self._is_exact,
            remarks=tuple(self.mismatches()),
        )

    def mismatches(self) -> Iterator[str]:
        """Return the deviations from the request, one line each, if it ended; what was not counted cannot differ."""
        said = self.said
        if said.is_last and said.n_gen not in (None, self.asked.n_gen):
            why = f" (it ended with {shorten(said.finish_reason, 20)!r})" if said.finish_reason else ""
            yield f"generated {said.n_gen} tokens, requested {self.asked.n_gen}{why}"
        if said.is_last and said.n_prompt not in (None, self.n_prompt):
            yield f"read a prompt of {said.n_prompt} tokens, requested {self.n_prompt}"
        if said.n_cached:
            yield f"took {said.n_cached} of the prompt's tokens from a cache"
        if said.is_cut:
            yield "cut the prompt to fit its context"
        if self.clock == "server" and not self._has_clock:
            yield "its clock is missing or ran backwards"
        if not self._is_exact:
            yield f"did not count the tokens in each of {self.n_tokens:,} chunks"

    @property
    def is_timed(self) -> bool:
        """Whether any token was timed after the first."""
        return self._n_timed > 1

    @property
    def _is_exact(self) -> bool:
        return self._is_counted or self.said.n_gen == self.n_tokens

    def _since(self, at_ns: int | None) -> int | None:
        return None if at_ns is None else at_ns - self.origin_ns

    def _take_tokens(self, piece: Piece, n_new: int | None, at_ns: int) -> None:
        self.text += piece.text
        by_server = self.clock == "server"
        decode_ns = self._trusted(piece.decode_ns) if by_server else at_ns
        if n_new is None:
            self._is_counted, n_new = False, 1
        if n_new < 1:
            return
        self.n_tokens += n_new
        self.last_token_ns = at_ns
        if n_new > 1:
            self._n_together += n_new
        if self.first_token_ns is None:
            self.first_token_ns = at_ns
            # the server's clock starts with the first token, the client's at the arrival of the first chunk
            self._n_timed, self._clock_ns = (1, 0) if by_server else (self.n_tokens, at_ns)
        self._time_tokens(decode_ns)

    def _trusted(self, decode_ns: int | None) -> int | None:
        """Return the server's clock, unless it is not trusted."""
        if decode_ns is None or decode_ns < self._decode_ns:
            self._has_clock = False
        else:
            self._decode_ns = decode_ns
        return decode_ns if self._has_clock else None

    def _time_tokens(self, at_ns: int | None) -> None:
        """Time the tokens since the last timed one: one is a step, several are a chunk."""
        n_new, first = self.n_tokens - self._n_timed, self.n_prompt + self._n_timed
        if at_ns is None or at_ns < self._clock_ns or not n_new:
            return
        elapsed_ns = at_ns - self._clock_ns
        self._n_timed, self._clock_ns = self.n_tokens, at_ns
        if n_new > 1:
            self._end_steps()
            self._chunks.append((first, n_new, elapsed_ns))
            return
        self._steps.append(elapsed_ns)
        if len(self._steps) == 1:
            self._steps_from = first

    def _end_steps(self) -> None:
        if self._steps:
            self._ended_steps.append(Steps(self._steps_from, self._steps, [], self.text, self.clock, self.seq))
            self._steps, self.text = [], ""

    def _flush_steps(self) -> Iterator[Event]:
        self._end_steps()
        yield from self._ended_steps
        self._ended_steps = []

    def _flush_chunks(self) -> Iterator[Event]:
        if self._chunks:
            positions, counts, elapsed = zip(*self._chunks, strict=True)
            yield TokensTogether(TokenChunks(positions, counts, elapsed), self.seq)
            self._chunks = []
