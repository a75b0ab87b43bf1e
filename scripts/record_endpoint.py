"""Record how a real server answers and streams, for the tests: `python scripts/record_endpoint.py URL OUT SOURCE`.

The paths of files and the times of creation are the server's; look at the file before it is committed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from ggbench.engines.http.client import Client, Connection, HttpResponse
from ggbench.engines.http.endpoint import Address
from ggbench.engines.http.messages import Generate, Post
from ggbench.engines.http.request import StreamedRequest
from ggbench.engines.http.server import Server

_STREAMS = ((16, 8), (64, 24))
"""Tokens of the prompt and of the generation of each recorded stream."""


class _Recorder(Client):
    """A client that keeps all it receives."""

    def __init__(self, address: Address) -> None:
        super().__init__(address, 120)
        self.documents: list[dict[str, object]] = []
        self.streams_kept: list[dict[str, object]] = []

    def ask(self, path: str, body: object = None) -> HttpResponse:
        answer = super().ask(path, body)
        text = answer.body.decode(errors="replace")
        kept = {
            "method": "GET" if body is None else "POST",
            "path": path,
            "status": answer.status,
            "body": text,
        }
        if kept not in self.documents:
            self.documents.append(kept)
        return answer

    def stream(self, post: Post, connection: Connection) -> Iterator[tuple[int, bytes | None]]:
        lines: list[tuple[int, str]] = []
        sent_ns = 0
        try:
            for at_ns, line in super().stream(post, connection):
                if line is None:
                    sent_ns = at_ns
                else:
                    lines.append(((at_ns - sent_ns) // 1000, line.decode(errors="replace")))
                yield at_ns, line
        finally:  # whoever reads them stops at the end of the generation
            body = {name: value for name, value in post.body.items() if name not in ("prompt", "cache_salt")}
            self.streams_kept.append({"path": post.path, "request": body, "lines_us": lines})


def main(url: str, out: Path, source: str) -> None:
    """Record the documents of the recognition and two streams."""
    client = _Recorder(Address.parse(url))
    server = Server(client.address, client=client)
    info, model = server.info, server.info.models[0].name
    for n_prompt, n_gen in _STREAMS:
        request = StreamedRequest(Generate(model, server.prompt(model, n_prompt), n_gen), info.clock)
        for _ in server.stream([request]):
            pass
        print(request.error or request.said)
    document = {"source": source, "title": info.title, "version": info.version, "documents": client.documents,
                "streams": client.streams_kept}  # fmt: skip
    out.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
