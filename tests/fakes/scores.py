"""Workers that score texts, and files that pass for trained models."""

import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ggbench.engines import protocol
from ggbench.engines.contract import Request, Score, Tokenize
from ggbench.engines.endings import Completed, Ending
from ggbench.engines.events import Scored, Tokenized
from ggbench.gguf_file.header import encode_header, read_model_file
from ggbench.gguf_file.twin import cached_twin
from tests.conftest import TINY
from tests.fakes.engine import Answer, obey
from tests.fakes.watched import WAIT_S


def scores(nll: float = 2.0, n_tokens: int = 320, bos: int | None = None) -> Answer:
    def answer(request: Request) -> Iterator[protocol.Message | Ending]:
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
                    yield Scored(values, *base, [False, *([True] * (count - 1))][:count])
                else:
                    yield Scored(values)
                yield Completed()
            case _:
                yield from obey(request)

    return answer


def _string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


@dataclass
class Scattered:
    """A worker whose model finds some chunks and tokens harder than others, in every run the same ones."""

    worse: float = 0.1
    """Mean nll above the base's."""
    n_tokens: int = 32 * 200
    stops_at: int | None = None
    """Which compared request waits until the test lets it go on; None for none."""
    reached: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)
    _n_compared: int = 0

    def answer(self, request: Request) -> Iterator[protocol.Message | Ending]:
        if not isinstance(request, Score) or request.rows is None or request.rows.writes or not request.targets[0]:
            yield from scores(n_tokens=self.n_tokens)(request)
            return
        if self._n_compared == self.stops_at:
            self.reached.set()
            assert self.opened.wait(WAIT_S)
        random = np.random.default_rng(self._n_compared)
        self._n_compared += 1
        base = random.gamma(2, 1.2, (len(request.targets), 1)) + random.exponential(0.8, len(request.targets[0]))
        nll = base + random.normal(self.worse, 0.2, base.shape)
        kld = random.exponential(self.worse, base.shape)
        same = (random.random(base.size) > self.worse).tolist()
        yield Scored(nll.ravel().tolist(), base.ravel().tolist(), kld.ravel().tolist(), [0.01] * base.size, same)
        yield Completed()


def without_mark(twin: Path, path: Path) -> Path:
    """A twin without its mark and with the name of a tokenizer, so that it passes for a trained model."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = twin.read_bytes().replace(b"ggbench.twin", b"ggbench.none")
    path.write_bytes(content.replace(_string(b"none"), _string(b"gpt2")))
    return path


def with_tokenizer(twin: Path, path: Path) -> Path:
    """A twin without its mark and with a tokenizer of single bytes, which llama.cpp loads and scores texts with."""
    file = read_model_file(twin)
    metadata = {key: value for key, value in file.metadata.items() if not key.startswith(("ggbench.", "tokenizer."))}
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    words += [f"word{number}" for number in range(len(words), TINY.n_vocab)]
    tokenizer = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.scores": [-float(number) for number in range(len(words))],
    }
    header = encode_header(metadata | tokenizer, file.tensors)
    path.write_bytes(header.data + twin.read_bytes()[len(header.data) - header.file_bytes :])
    return path


def trained_folder(path: Path) -> Path:
    """Write two quants of one model that pass for trained ones, q8_0 the larger; return their folder."""
    for quant in ("q8_0", "q4_0"):
        twin = cached_twin("tiny", TINY, quant, path / "twins")
        without_mark(twin, path / "model" / f"tiny-{quant}.gguf")
    return path / "model"
