"""What the fake servers say: documents and streams as real servers sent them, and streams of any length like them.

The recordings in tests/data/endpoints name their sources. A voice of any length takes the documents of a recording.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECORDINGS = Path(__file__).parents[1] / "data" / "endpoints"
Body = Mapping[str, Any]
_STREAMED = ("/completion", "/v1/completions", "/api/generate")


@dataclass(frozen=True, slots=True)
class Said:
    """A line of a stream, so long after the line before; or what a recorded document was."""

    after_s: float
    line: bytes


class Recording:
    def __init__(self, name: str) -> None:
        kept = json.loads((RECORDINGS / f"{name}.json").read_text())
        self.documents: dict[tuple[str, str], tuple[int, bytes]] = {
            (each["method"], each["path"]): (each["status"], each["body"].encode()) for each in kept["documents"]
        }
        self.streams: list[Any] = kept["streams"]

    def document(self, method: str, path: str, body: Body) -> tuple[int, bytes]:
        return self.documents.get((method, path), (404, b'{"detail":"Not Found"}'))

    def is_streamed(self, path: str, body: Body) -> bool:
        return path in _STREAMED

    def stream(self, path: str, body: Body) -> Iterator[Said]:
        """Yield the lines of the recorded stream of the same request, else of the first, without their pauses."""
        asked = {name: body.get(name) for name in ("n_predict", "max_tokens")}
        same = [each for each in self.streams if all(each["request"].get(name) == asked[name] for name in asked)]
        for _, line in (same or self.streams)[0]["lines_us"]:
            yield Said(0.0, line.encode())


class AnyLength(Recording):
    """A server that generates as many tokens as it is asked for; its own clock says `step_ns` for each."""

    def __init__(self, name: str, *, step_ns: int = 10_000_000, pause_s: float = 0.0, n_drafted: int = 0) -> None:
        super().__init__(name)
        self.step_ns = step_ns
        self.pause_s = pause_s
        self.n_drafted = n_drafted
        self._lines = {
            "/completion": self._llama_server, "/v1/completions": self._completions, "/api/generate": self._ollama,
        }  # fmt: skip

    def stream(self, path: str, body: Body) -> Iterator[Said]:
        for line in self._lines[path](body):
            yield Said(self.pause_s, line)

    def _llama_server(self, body: Body) -> Iterator[bytes]:
        n_prompt, n_gen = len(body["prompt"]), body["n_predict"]
        prompt_ms = n_prompt * self.step_ns / 1e7
        for n in range(1, n_gen + 1):
            timings = {
                "cache_n": 0, "prompt_n": n_prompt, "prompt_ms": prompt_ms, "predicted_n": n,
                "predicted_ms": max(0.001, (n - 1) * self.step_ns / 1e6),
            }  # fmt: skip
            if self.n_drafted:
                timings |= {"draft_n": self.n_drafted, "draft_n_accepted": self.n_drafted // 2}
            chunk = {"index": 0, "content": " a", "tokens": [5], "stop": False, "tokens_predicted": n}
            chunk |= {"tokens_evaluated": n_prompt, "timings": timings}
            yield b"data: " + json.dumps(chunk).encode()
            yield b""
        yield b"data: " + json.dumps(chunk | {"content": "", "stop": True, "stop_type": "limit"}).encode()
        yield b""

    def _completions(self, body: Body) -> Iterator[bytes]:
        n_prompt, n_gen = _length(body["prompt"]), body["max_tokens"]
        usage = {"prompt_tokens": n_prompt, "completion_tokens": 0}
        for n in range(1, n_gen + 1):
            choice: dict[str, Any] = {"index": 0, "text": " a", "finish_reason": "length" if n == n_gen else None}
            chunk: dict[str, Any] = {"object": "text_completion", "choices": [choice]}
            usage["completion_tokens"] = n
            if body.get("stream_options", {}).get("continuous_usage_stats"):
                chunk["usage"] = usage
            yield b"data: " + json.dumps(chunk).encode()
            yield b""
        if body.get("stream_options", {}).get("include_usage"):
            yield b"data: " + json.dumps({"object": "text_completion", "choices": [], "usage": usage}).encode()
            yield b""
        yield b"data: [DONE]"
        yield b""

    def _ollama(self, body: Body) -> Iterator[bytes]:
        n_gen = body["options"]["num_predict"]
        for _ in range(n_gen):
            yield json.dumps({"model": body["model"], "response": " a", "done": False}).encode()
        n_prompt = _length(body["prompt"])
        end = {
            "model": body["model"], "response": "", "done": True, "done_reason": "length",
            "load_duration": 5_000_000,
        }  # fmt: skip
        end |= {"prompt_eval_count": n_prompt, "prompt_eval_duration": n_prompt * self.step_ns // 10}
        yield json.dumps(end | {"eval_count": n_gen, "eval_duration": (n_gen - 1) * self.step_ns}).encode()


def _length(prompt: object) -> int:
    """A text has a token for each word and one for its beginning."""
    return len(prompt) if isinstance(prompt, list) else len(str(prompt).split()) + 1
