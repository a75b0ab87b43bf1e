"""What has come of one request to a server, as the engine's events.

The first token comes with the prompt, so it is no decode step: `n_gen` steps take a request for one token more. The
step that makes token i + 1 decodes token i, at position n_prompt + i.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from ggbench.engines.events import Event, ReadingPrompts, RequestEnded, Steps, TokensTogether
from ggbench.engines.server.contract import Ended, FirstByte, GenerationFailed, Item, PromptProgress, Sent, Tokens
from ggbench.engines.workloads import FLUSH_NS
from ggbench.errors import GgbenchError
from ggbench.stats.decode_timing import Clock, RequestTiming, TokenChunks

_CHUNKS_EVERY_NS = 1_000_000_000
"""Chunks are reported at most this often: each report is a record in the store."""


_NOTHING = Ended(0, None, None, None, "")


@dataclass(slots=True)
class _Spread:
    """Standard deviation of numbers as they come. Source: Welford (1962), Technometrics 4(3)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        delta = value - self.mean
        self.mean += delta / self.count
        self.squares += delta * (value - self.mean)

    @property
    def deviation(self) -> float | None:
        return math.sqrt(self.squares / (self.count - 1)) if self.count > 1 else None


@dataclass(slots=True)
class StreamedRequest:
    n_prompt: int
    n_gen: int
    clock: Clock
    seq: int | None = None
    origin_ns: int = 0
    """When the first request of the batch was sent, by the client's clock."""
    error: GgbenchError | None = None
    sent_ns: int | None = None
    first_byte_ns: int | None = None
    first_token_ns: int | None = None
    n_tokens: int = 0
    ended: Ended | None = None
    _last_ns: int = 0
    _clock_ns: int = 0
    """Of the last timed token: the server's clock from the first token, or the client's."""
    _n_timed: int = 0
    """Tokens up to that one."""
    _n_together: int = 0
    _counted_by_chunks: bool = False
    _jitter: _Spread = field(default_factory=_Spread)
    _steps: list[int] = field(default_factory=list)
    _steps_from: int = 0
    """Position of the first of `_steps`."""
    _text: list[str] = field(default_factory=list)
    _chunks: list[tuple[int, int, int]] = field(default_factory=list)
    _flushed_ns: int = 0
    _chunks_flushed_ns: int = 0

    def take(self, item: Item) -> Iterator[Event]:
        match item:
            case Sent(at_ns):
                self.sent_ns = self._flushed_ns = self._chunks_flushed_ns = at_ns
            case FirstByte(at_ns):
                self.first_byte_ns = at_ns
            case PromptProgress(n_tokens=n_tokens):
                yield ReadingPrompts(min(1.0, n_tokens / max(1, self.n_prompt)))
            case Tokens():
                yield from self._take_tokens(item)
            case Ended():
                self.ended = item
            case GenerationFailed(error=error):
                self.error = error

    def finish(self) -> Iterator[Event]:
        """Report the rest, whether the stream ended or is given up."""
        yield from self._flush_steps()
        yield from self._flush_chunks()
        yield RequestEnded(self.timing, self.seq)

    @property
    def is_exact(self) -> bool:
        """Whether it is known how many tokens each chunk had."""
        return not self._counted_by_chunks or (self.ended is not None and self.ended.n_gen == self.n_tokens)

    @property
    def prompt_tokens(self) -> int:
        return (self.ended.n_prompt if self.ended else None) or self.n_prompt

    @property
    def timing(self) -> RequestTiming:
        ended, n_tokens = self.ended or _NOTHING, self.n_tokens
        if self._counted_by_chunks and ended.n_gen is not None:
            n_tokens = ended.n_gen
        remarks = ended.request_mismatches
        if not self.is_exact and ended.n_gen is not None:
            remarks = (*remarks, f"{n_tokens:,} tokens came in {self.n_tokens:,} chunks of unknown sizes")
        elif not self.is_exact:
            remarks = (*remarks, f"did not count its tokens: {self.n_tokens:,} chunks came")
        return RequestTiming(
            n_prompt=self.n_prompt,
            n_gen=self.n_gen,
            sent_ns=self._since(self.sent_ns) or 0,
            clock=self.clock,
            first_byte_ns=self._since(self.first_byte_ns),
            first_token_ns=self._since(self.first_token_ns),
            last_token_ns=self._since(self._last_ns) if self.n_tokens else None,
            n_prompt_counted=ended.n_prompt,
            n_cached=ended.n_cached,
            n_tokens=n_tokens,
            n_tokens_together=self._n_together,
            server_prompt_ns=ended.prompt_ns,
            server_gen_ns=ended.decode_ns,
            jitter_ns=self._jitter.deviation,
            n_drafted=ended.n_drafted,
            n_accepted=ended.n_accepted,
            is_exact=self.is_exact,
            remarks=remarks,
        )

    def _since(self, at_ns: int | None) -> int | None:
        return None if at_ns is None else at_ns - self.origin_ns

    def _take_tokens(self, item: Tokens) -> Iterator[Event]:
        if item.n_tokens is None:
            self._counted_by_chunks = True
        n_new = 1 if item.n_tokens is None else item.n_tokens
        self._text.append(item.text)
        if n_new < 1:
            return
        is_first, arrival_ns = self.first_token_ns is None, item.at_ns - self._last_ns
        self.n_tokens += n_new
        self._last_ns = item.at_ns
        if n_new > 1:
            self._n_together += n_new
        if is_first:
            self.first_token_ns = item.at_ns
            self._n_timed, self._clock_ns = (1, 0) if self.clock == "server" else (self.n_tokens, item.at_ns)
        read_ns = item.decode_ns if self.clock == "server" else item.at_ns
        if read_ns is not None and self.n_tokens > self._n_timed and read_ns >= self._clock_ns:
            elapsed_ns, n_timed = read_ns - self._clock_ns, self.n_tokens - self._n_timed
            first_position = self.n_prompt + self._n_timed
            self._n_timed, self._clock_ns = self.n_tokens, read_ns
            if n_timed == 1:
                self._steps_from = self._steps_from if self._steps else first_position
                self._steps.append(elapsed_ns)
                if self.clock == "server" and not is_first:
                    self._jitter.add(arrival_ns - elapsed_ns)
            else:
                yield from self._flush_steps()
                self._chunks.append((first_position, n_timed, elapsed_ns))
        if item.at_ns - self._flushed_ns > FLUSH_NS:
            yield from self._flush_steps()
            self._flushed_ns = item.at_ns
        if item.at_ns - self._chunks_flushed_ns > _CHUNKS_EVERY_NS:
            yield from self._flush_chunks()
            self._chunks_flushed_ns = item.at_ns

    def _flush_steps(self) -> Iterator[Event]:
        if self._steps:
            yield Steps(self._steps_from, self._steps, [], "".join(self._text), self.clock, self.seq)
            self._steps, self._text = [], []

    def _flush_chunks(self) -> Iterator[Event]:
        if self._chunks:
            positions, counts, elapsed = zip(*self._chunks, strict=True)
            yield TokensTogether(TokenChunks(positions, counts, elapsed), self.seq)
            self._chunks = []
