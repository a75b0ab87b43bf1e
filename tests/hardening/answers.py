"""A server that dies, hangs, sends garbage or counts wrongly, and a llama-server that ggbench starts itself."""

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

from tests.fakes.endpoint import TestEndpoint
from tests.fakes.endpoint_faults import ANY_FAULTS, CLOCK_FAULTS, STREAM_FAULTS, everywhere, of_streams
from tests.fakes.endpoint_voices import AnyLength, Body, Said
from tests.fakes.llama_server import install
from tests.hardening.damage import MUTATIONS, TEXT_MUTATIONS, damaged
from tests.hardening.kills import check_store, samples_by_run
from tests.hardening.trials import Trials

_VOICES = ("llama_server", "vllm", "ollama")
_KINDS = (*MUTATIONS, *[kind for kind in TEXT_MUTATIONS for _ in range(5)])
_WAYS = (
    "no model", "no memory", "unknown flag", "bad value", "aborts", "another cpu", "silent", "floods on", "no room",
    "dies", "hangs", "floods", "untimed", "no library",
)  # fmt: skip
_WORDS = ("-n", "30", "--timeout", "1", "--quiet")


def broken_servers(n: int, draw: random.Random, folder: Path, model: Path) -> Trials:
    """Decode by servers whose answers are damaged at random, each of the known faults, and programs that fail."""
    row = Trials("servers that die, hang and send garbage")
    folder.mkdir(parents=True)
    faults = {name: everywhere(each) for name, each in ANY_FAULTS.items()}
    faults |= {f"{name} of streams": of_streams(each) for name, each in (STREAM_FAULTS | CLOCK_FAULTS).items()}
    for voice, (name, fault) in itertools.islice(itertools.product(_VOICES, faults.items()), n):
        with TestEndpoint(AnyLength(voice), fault) as endpoint:
            _decode(row, f"{voice}, {name}", [endpoint.url])
    for kind, voice in itertools.islice(itertools.cycle(itertools.product(_KINDS, _VOICES)), n):
        with TestEndpoint(_Damaged(voice, draw, kind)) as endpoint:
            _decode(row, f"{voice}, {kind}", [endpoint.url])
    for way in _WAYS[:n]:
        program = install(folder, way)
        _decode(row, f"llama-server: {way}", [str(model), "--engine", f"llama-server={program}"])
    return row


def _decode(row: Trials, label: str, words: list[str]) -> None:
    before = samples_by_run()
    row.run(label, "decode", *words, *_WORDS)
    check_store(row, label, before)


class _Damaged(AnyLength):
    """Damages one document in four, and one line of a stream in twenty."""

    def __init__(self, name: str, draw: random.Random, kind: str) -> None:
        super().__init__(name)
        self._draw, self._kind = draw, kind

    def document(self, method: str, path: str, body: Body) -> tuple[int, bytes]:
        status, content = super().document(method, path, body)
        return status, content if self._draw.randrange(4) else damaged(content, self._draw, self._kind)

    def stream(self, path: str, body: Body) -> Iterator[Said]:
        for said in super().stream(path, body):
            yield said if self._draw.randrange(20) else Said(0.0, damaged(said.line, self._draw, self._kind))
