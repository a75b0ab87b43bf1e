"""Workers that score texts, and files that pass for trained models."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from ggbench.engine import protocol
from ggbench.engine.endings import Completed, Ending
from ggbench.engine.events import Scored, Tokenized
from ggbench.engine.workloads.score import Score
from ggbench.engine.workloads.tokenize import Tokenize
from tests.conftest import TINY
from tests.fakes.engine import Answer, obey


def scores(nll: float = 2.0, n_tokens: int = 320, bos: int | None = None) -> Answer:
    """A worker whose model finds every token equally hard."""

    def answer(request: protocol.Request) -> Iterator[protocol.Message | Ending]:
        match request:
            case Tokenize():
                yield Tokenized([index % TINY.n_vocab for index in range(n_tokens)], TINY.n_vocab, bos)
                yield Completed()
            case Score(targets=targets, rows=rows):
                count = sum(map(len, targets))
                compared = rows is not None and not rows.writes
                values = [nll] * count
                if compared:
                    base = [nll - 0.5] * count, [0.25] * count, [0.1] * count
                    yield Scored(values, *base, count - 1 if count else 0)
                else:
                    yield Scored(values)
                yield Completed()
            case _:
                yield from obey(request)

    return answer


def _string(text: bytes) -> bytes:
    """A string as GGUF has it."""
    return struct.pack("<Q", len(text)) + text


def without_mark(twin: Path, path: Path) -> Path:
    """A twin without its mark and with the name of a tokenizer, so that it passes for a trained model."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = twin.read_bytes().replace(b"ggbench.twin", b"ggbench.none")
    path.write_bytes(content.replace(_string(b"none"), _string(b"gpt2")))
    return path
