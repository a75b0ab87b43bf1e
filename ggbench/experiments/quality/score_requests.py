"""The requests that score some chunks of a text, and what comes back of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from ggbench.engines.endings import Ending, require_completed
from ggbench.engines.events import Event, Tokenized
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.workloads.score import Score
from ggbench.experiments.quality.record import QualitySettings
from ggbench.runs.session import Session

_ROWS_BYTES = 96 << 20
"""Of float32 rows of the vocabulary that are in memory at once: 512, a whole ubatch, of 49,152 tokens, or 96 of the
largest vocabularies."""

_LARGEST_VOCABULARY = 1 << 18
"""Taken where the header does not say."""

_E = TypeVar("_E", bound=Event)


def scoring_setup(settings: QualitySettings, setup: LlamaConfig, n_vocab: int | None) -> LlamaConfig:
    """Return the setup with room for all chunks that are decoded at once, and for the rows of one request.

    A request scores no more positions than a ubatch has, since what goes beyond makes a second, small one.
    """
    n_rows = min(_ROWS_BYTES // (4 * (n_vocab or _LARGEST_VOCABULARY)), setup.n_ubatch)
    at_once = max(1, min(n_rows // settings.n_seqs, settings.n_ctx))
    return replace(
        setup, n_ctx=settings.n_ctx_needed, n_seq_max=settings.n_seqs, n_outputs_max=settings.n_seqs * at_once
    )


class Scoring(msgspec.Struct, frozen=True):
    """The chunks of a text that one model scores."""

    session: Session
    setup: LlamaConfig
    """As `scoring_setup` returns it."""
    text: str
    tokenized: Tokenized
    n_chunks: int

    @property
    def settings(self) -> QualitySettings:
        """Of the run."""
        return self.session.settings(QualitySettings)

    @property
    def tokens(self) -> list[int]:
        """Of all chunks."""
        return self.tokenized.tokens[: self.n_chunks * self.settings.n_ctx]

    @property
    def rows_bytes(self) -> int:
        """Of the float32 rows that one request scores."""
        assert self.setup.n_outputs_max is not None
        return 4 * self.tokenized.n_vocab * self.setup.n_outputs_max

    def firsts(self, start: int = 0) -> range:
        """Number of the first of the chunks that are decoded at once, each time."""
        return range(start, self.n_chunks, self.settings.n_seqs)

    def count(self, first_chunk: int) -> int:
        """Chunks that are decoded at once from this one on."""
        return min(self.settings.n_seqs, self.n_chunks - first_chunk)

    def requests(self, first_chunk: int) -> Iterator[Score]:
        """Cut the chunks that are decoded at once into requests: first what is only read, then what is scored."""
        settings, bos = self.settings, self.tokenized.bos
        n_ctx, n_skip = settings.n_ctx, settings.n_ctx // 2
        count = self.count(first_chunk)
        chunks = [
            tuple(self.tokenized.tokens[index * n_ctx : (index + 1) * n_ctx])
            for index in range(first_chunk, first_chunk + count)
        ]
        with_bos = tuple(chunk if bos is None else (bos, *chunk[1:]) for chunk in chunks)
        assert self.setup.n_outputs_max is not None
        read_at_once, scored_at_once = self.setup.n_batch, self.setup.n_outputs_max
        starts = [
            *range(0, n_skip, read_at_once // count),
            *range(n_skip, n_ctx - 1, scored_at_once // count),
        ]
        for start, stop in zip(starts, [*starts[1:], n_ctx - 1], strict=True):
            targets = tuple(chunk[start + 1 : stop + 1] if start >= n_skip else () for chunk in chunks)
            yield Score(with_bos, targets, start, stop, self.setup.threads or 1)


def only(kind: type[_E], events: Sequence[Event], ending: Ending) -> _E:
    """Return the one event of that type. Raises EngineEnded."""
    require_completed(ending)
    (found,) = (event for event in events if isinstance(event, kind))
    return found


def follow(items: Iterator[Event | Ending]) -> tuple[list[Event], Ending]:
    """Return all events of an engine, and the ending."""
    *events, ending = items
    assert isinstance(ending, Ending)
    return [event for event in events if not isinstance(event, Ending)], ending
