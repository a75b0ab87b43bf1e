"""Decode steps of which some were timed one by one and others only several together, as a server's stream has them.

Nothing is interpolated: no time is made up for a token inside a chunk. Rare chunks, as of characters of several tokens
that a server holds back until they are whole, are left out of fits and percentiles, and count for the speed. Where they
are common, as under speculative decoding, to leave them out would leave out the tokens that came fast. There neighbours
are joined until at least 16 tokens have one time, which is placed at their mean position: a line through such means is
the line through the tokens, and blocks of about one size weigh alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from ggbench.stats.serving import TokenChunks

RARE = 0.05
"""Share of the tokens up to which those in chunks are left out of fits and percentiles."""
_BLOCK = 16
"""Tokens: of a stair of 256 cells a sixteenth, and several steps of a draft of usual length."""


class TimedSeries(msgspec.Struct, frozen=True):
    """One decode: its single steps, and the chunks between them."""

    position: Sequence[int]
    """Tokens in the KV cache at each single step, the one being decoded included."""
    step_ns: Sequence[int]
    sample_ns: Sequence[int] = ()
    """Of each single step; empty where the sampler was not timed."""
    chunks: Sequence[TokenChunks] = ()


@dataclass(slots=True)
class TokenTimes:
    """Times for a fit, and what they were made of."""

    position: list[float] = field(default_factory=list)
    """Of a time of several tokens, the mean of their positions. A series ends where it does not rise."""
    step_ns: list[float] = field(default_factory=list)
    """Per token."""
    sample_ns: list[int] = field(default_factory=list)
    n_tokens: int = 0
    """All that were timed, alone or together."""
    n_together: int = 0
    elapsed_ns: int = 0
    """Of all of them."""

    @property
    def is_single(self) -> bool:
        """Whether each time is that of one token."""
        return self.n_together <= RARE * self.n_tokens

    @classmethod
    def of(cls, parts: Sequence[TimedSeries]) -> TokenTimes:
        """Join the times of several series, one after the other."""
        found = cls()
        for part in parts:
            together = sum(sum(each.n_tokens) for each in part.chunks)
            found.n_together += together
            found.n_tokens += len(part.step_ns) + together
            found.elapsed_ns += sum(part.step_ns) + sum(sum(each.elapsed_ns) for each in part.chunks)
        for part in parts:
            if found.is_single:
                found.position.extend(part.position)
                found.step_ns.extend(part.step_ns)
                found.sample_ns.extend(part.sample_ns)
            else:
                for position, step_ns in _blocks(part):
                    found.position.append(position)
                    found.step_ns.append(step_ns)
        return found


def in_order(part: TimedSeries) -> list[tuple[int, int, int]]:
    """Return first position, tokens and ns of all that was timed in a series, by rising position."""
    timed = [(first, 1, ns) for first, ns in zip(part.position, part.step_ns, strict=True)]
    for each in part.chunks:
        timed += zip(each.first_position, each.n_tokens, each.elapsed_ns, strict=True)
    return sorted(timed)


def _blocks(part: TimedSeries) -> Iterator[tuple[float, float]]:
    """Mean position and time per token of consecutive tokens, at least 16 each; a shorter rest is left out."""
    begin, end, elapsed_ns = 0, 0, 0
    for first, n_tokens, ns in in_order(part):
        if first != end:
            begin, elapsed_ns = first, 0  # a token between them was not timed
        end, elapsed_ns = first + n_tokens, elapsed_ns + ns
        if end - begin >= _BLOCK:
            yield (begin + end - 1) / 2, elapsed_ns / (end - begin)
            begin, elapsed_ns = end, 0
