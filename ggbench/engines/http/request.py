"""One generation as it arrives: its tokens' times by the server's clock or the client's, and what was not as asked."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec.structs import asdict

from ggbench.engines.events import Event, ReadingPrompts, RequestEnded, Steps, TokensTogether
from ggbench.engines.http.messages import Generate, Piece
from ggbench.engines.http.stream import InvalidStream
from ggbench.errors import GgbenchError
from ggbench.stats.decode_timing import Clock, RequestTiming, TokenChunks
from ggbench.text import shorten

FLUSH_NS = 250_000_000
"""Minimum interval between reports: chunks of each are a record in the store."""
_WORD_TOKENS = 4
"""Largest difference between a server's count of a text and that of its words: it may add some tokens, or none."""


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
    sent_ns: int | None = None
    progress_ns: int = 0
    """Time of the last progress."""
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    answer: list[Piece] = field(default_factory=list)
    """The pieces with text or ids, if the request keeps the cache."""
    n_tokens: int = 0
    """Tokens, or chunks if the server does not count its tokens."""
    _is_counted: bool = True
    _n_together: int = 0
    _has_clock: bool = True
    """Whether the server's clock is trusted: no more after one impossible value."""
    _clock_ns: int = 0
    """Time of the last timed token: by the server's clock from the first token, or by the client's."""
    _n_timed: int = 0
    """Number of tokens up to that one."""
    _timed: list[tuple[int, int, int]] = field(default_factory=list)
    """Position of the first token, tokens and time of each that is not yet reported."""
    _flushed_ns: int = 0

    @property
    def n_prompt(self) -> int:
        return self.asked.prompt.n_tokens

    def take(self, at_ns: int, piece: Piece | None) -> Iterator[Event]:
        """Take a line that arrived, or None for the sending. Raises InvalidStream for a count that falls."""
        if piece is None:
            self.sent_ns = self._flushed_ns = self.progress_ns = at_ns
            return
        if piece.n_read is not None:
            self.progress_ns = at_ns
            yield ReadingPrompts(min(1.0, piece.n_read / max(1, self.n_prompt)))
            return
        if self.asked.keeps_cache and (piece.text or piece.tokens):
            self.answer.append(piece)
        known = {name: value for name, value in asdict(piece).items() if value is not None}
        self.said = Piece(**asdict(self.said) | known)
        if n_new := self._new_tokens(piece):
            self._take_tokens(piece, n_new, at_ns)
        if at_ns - self._flushed_ns > FLUSH_NS:
            self._flushed_ns = at_ns
            yield from self._flush()

    def finish(self) -> Iterator[Event]:
        """Report the rest, whether the stream ended or was abandoned."""
        yield from self._flush()
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
        if said.is_last:
            yield from self._other_counts()
        if said.n_cached and not self.asked.keeps_cache:
            yield f"took {said.n_cached} of the prompt's tokens from a cache"
        if said.is_cut:
            yield "cut the prompt to fit its context"
        if self.clock == "server" and not self._has_clock:
            yield "its clock is missing or ran backwards"
        if not self._is_exact:
            yield f"did not count the tokens in each of {self.n_tokens:,} chunks"

    def _other_counts(self) -> Iterator[str]:
        said, few = self.said, 0 if self.asked.prompt.tokens else _WORD_TOKENS
        if said.n_gen not in (None, self.asked.n_gen):
            why = f" (it ended with {shorten(said.finish_reason, 20)!r})" if said.finish_reason else ""
            yield f"generated {said.n_gen} tokens, requested {self.asked.n_gen}{why}"
        if said.n_prompt is not None and abs(said.n_prompt - self.n_prompt) > few:
            yield f"read a prompt of {said.n_prompt} tokens, requested {self.n_prompt}"

    @property
    def is_timed(self) -> bool:
        """Whether any token was timed after the first."""
        return self._n_timed > 1

    @property
    def _is_exact(self) -> bool:
        return self._is_counted or self.said.n_gen == self.n_tokens

    def _since(self, at_ns: int | None) -> int | None:
        return None if at_ns is None else at_ns - self.origin_ns

    def _new_tokens(self, piece: Piece) -> int:
        """Return the new tokens by the server's count or, once a first text came without one, 1 for each text."""
        if piece.n_gen is None and piece.text and not self.n_tokens:
            self._is_counted = False
        if not self._is_counted:
            return int(bool(piece.text))
        n_new = 0 if piece.n_gen is None else piece.n_gen - self.n_tokens
        if n_new < 0:
            raise InvalidStream(f"a count of tokens that went from {self.n_tokens} to {piece.n_gen}")
        return n_new

    def _take_tokens(self, piece: Piece, n_new: int, at_ns: int) -> None:
        by_server = self.clock == "server"
        self.n_tokens += n_new
        self.last_token_ns = self.progress_ns = at_ns
        if n_new > 1:
            self._n_together += n_new
        if self.first_token_ns is None:
            self.first_token_ns = at_ns
            # the server's clock starts with the first token, the client's at the arrival of the first chunk
            self._n_timed, self._clock_ns = (1, 0) if by_server else (self.n_tokens, at_ns)
        self._time_tokens(piece.decode_ns if by_server else at_ns)

    def _time_tokens(self, at_ns: int | None) -> None:
        """Time the tokens since the last timed one together."""
        self._has_clock = self._has_clock and at_ns is not None and at_ns >= self._clock_ns
        if at_ns is None or not self._has_clock or self.n_tokens == self._n_timed:
            return
        n_new = self.n_tokens - self._n_timed
        self._timed.append((self.n_prompt + self._n_timed, n_new, at_ns - self._clock_ns))
        self._n_timed, self._clock_ns = self.n_tokens, at_ns

    def _flush(self) -> Iterator[Event]:
        """Report what was timed: single tokens as steps, and tokens that came together as chunks."""
        for is_single, timed in itertools.groupby(self._timed, key=lambda each: each[1] == 1):
            positions, counts, elapsed = zip(*timed, strict=True)
            if is_single:
                yield Steps(positions[0], list(elapsed), [], self.clock, self.seq)
            else:
                yield TokensTogether(TokenChunks(positions, counts, elapsed), self.seq)
        self._timed = []
