"""A server without a network: scripted streams behind the interface that the engine asks."""

import threading
from collections.abc import Callable, Iterator, Sequence

from ggbench.engines.events import Event
from ggbench.engines.http.messages import Generate, OfferedModel, Piece, Prompt, ServerInfo
from ggbench.engines.http.request import StreamedRequest
from ggbench.errors import GgbenchError
from ggbench.stats.decode_timing import Clock

Script = Callable[[int, Generate], Iterator[tuple[int, Piece | None] | GgbenchError]]
"""What arrives of the request of an index among those sent together, and when; or why it fails."""

B_NS, NS_PER_TOKEN, PROMPT_NS_PER_TOKEN = 10_000_000, 5_000, 1_000_000
"""The line of `on_a_line`: B 10 ms, W 200 tokens/ms; a prompt takes 1 ms a token."""
NETWORK_NS = 3_000_000
"""Delay of every arrival on top of the server's own clock."""


def step_ns(n_prompt: int, n: int) -> int:
    return B_NS + (n_prompt + n - 1) * NS_PER_TOKEN


def on_a_line(
    *,
    sizes: Sequence[int] = (1,),
    has_clock: bool = True,
    counts: bool = True,
    stops_after: int | None = None,
    n_prompt_counted: int | None = None,
    error: GgbenchError | None = None,
    n_drafted: int | None = None,
) -> Script:
    """Return streams of tokens on the line, in chunks of these sizes over and over, the first token alone.

    `stops_after` tokens the server ends the generation, or the stream breaks off with `error`.
    """

    def stream(index: int, asked: Generate) -> Iterator[tuple[int, Piece | None] | GgbenchError]:
        n_prompt, n_gen = asked.prompt.n_tokens, min(asked.n_gen, stops_after or asked.n_gen)
        began = 1_000_000_000 + index
        yield began, None
        prompt_ns = n_prompt * PROMPT_NS_PER_TOKEN
        decode_ns, done, turn = 0, 0, 0
        while done < n_gen:
            size = 1 if not done else min(sizes[turn % len(sizes)], n_gen - done)
            turn += done > 0
            decode_ns += sum(step_ns(n_prompt, done + i) for i in range(size)) if done else 0
            done += size
            arrived = began + prompt_ns + decode_ns + NETWORK_NS
            piece = Piece("word ", done if counts else None, decode_ns if has_clock else None)
            yield arrived, piece
        if error is not None:
            yield error
            return
        end = Piece(
            n_gen=done,
            decode_ns=decode_ns if has_clock else None,
            is_last=True,
            finish_reason="length" if done == asked.n_gen else "stop",
            n_prompt=n_prompt_counted or n_prompt,
            prompt_ns=prompt_ns if has_clock else None,
            n_drafted=n_drafted,
            n_accepted=None if n_drafted is None else n_drafted // 2,
        )
        yield arrived, end

    return stream


class ScriptedServer:
    def __init__(self, script: Script, *, clock: Clock = "server", n_ctx: int | None = 4096) -> None:
        model = OfferedModel("tiny", quant="Q4_1", n_ctx=n_ctx, n_params=1000, tensor_bytes=700)
        self.info = ServerInfo("llama-server", (model,), clock, "b1", n_parallel=4)
        self.asked: list[Generate] = []
        self.closed = False
        self._script = script

    def prompt(self, model: str, n_tokens: int, index: int = 0) -> Prompt:
        return Prompt(n_tokens, tuple(range(n_tokens)))

    def stream(self, requests: Sequence[StreamedRequest], cancel: threading.Event | None = None) -> Iterator[Event]:
        """Let each request take its script, an item of each in turn; nothing more once `cancel` is set."""
        self.asked += [each.asked for each in requests]
        scripts = [(each, self._script(index, each.asked)) for index, each in enumerate(requests)]
        while scripts:
            for request, script in list(scripts):
                if cancel is not None and cancel.is_set():
                    return
                item = next(script, None)
                if item is None:
                    scripts.remove((request, script))
                elif isinstance(item, GgbenchError):
                    request.error = item
                else:
                    yield from request.take(*item)

    def close(self) -> None:
        self.closed = True
