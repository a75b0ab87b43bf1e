"""Record how a real server answers and streams, for the tests: `python scripts/record_endpoint.py URL OUT SOURCE`.

The paths of files and the times of creation are the server's; look at the file before it is committed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from ggbench.engines.server.client import Client, Exchange, HttpResponse, StreamLine
from ggbench.engines.server.config import Address
from ggbench.engines.server.contract import Ended, Generate, GenerationFailed, Post, Sent
from ggbench.engines.server.server import recognize, run_together

_STREAMS = ((16, 8), (64, 24))
"""Tokens of the prompt and of the generation of each recorded stream."""


class _Recorder(Client):
    """A client that keeps all it receives."""

    def __init__(self, address: Address) -> None:
        super().__init__(address, timeout_s=120)
        self.documents: list[dict[str, object]] = []
        self.streams_kept: list[dict[str, object]] = []

    def _document(self, method: str, path: str, body: object) -> HttpResponse:
        answer = super()._document(method, path, body)
        text = answer.body.decode(errors="replace")
        kept = {"method": method, "path": path, "status": answer.status, "body": text}
        if kept not in self.documents:
            self.documents.append(kept)
        return answer

    def exchange(self, post: Post) -> Exchange:
        return _Kept(self, post)


class _Kept(Exchange):
    def items(self) -> Iterator[Sent | StreamLine]:
        lines: list[tuple[int, str]] = []
        sent_ns = 0
        try:
            for item in super().items():
                if isinstance(item, Sent):
                    sent_ns = item.at_ns
                elif isinstance(item, StreamLine):
                    lines.append(((item.at_ns - sent_ns) // 1000, item.content.decode(errors="replace")))
                yield item
        finally:  # whoever reads them stops at the end of the generation
            self._keep(lines)

    def _keep(self, lines: list[tuple[int, str]]) -> None:
        assert isinstance(self._client, _Recorder)
        body = {name: value for name, value in self._post.body.items() if name not in ("prompt", "cache_salt")}
        self._client.streams_kept.append({"path": self._post.path, "request": body, "lines_us": lines})


def main(url: str, out: Path, source: str) -> None:
    """Record the documents of the recognition and two streams."""
    client = _Recorder(Address.parse(url))
    kind, info = recognize(client)
    model = info.models[0].name

    def added() -> int:
        raise SystemExit("this kind of server needs a generation to count a prompt")

    for n_prompt, n_gen in _STREAMS:
        asked = Generate(model, kind.prompt(client, model, n_prompt, 0, added), n_gen)
        for _, item in run_together(client, kind, [asked], None):
            if isinstance(item, Ended | GenerationFailed):
                print(item)
    document = {"source": source, "title": info.title, "version": info.version, "documents": client.documents,
                "streams": client.streams_kept}  # fmt: skip
    out.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
