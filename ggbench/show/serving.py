"""How a server answered, in words: whose clock it was, the network, and what the server did not do as asked."""

from __future__ import annotations

from ggbench.engines.server.config import EndpointConfig
from ggbench.runs.run import Run
from ggbench.stats.serving import Serving
from ggbench.stats.token_times import RARE
from ggbench.text import plain
from ggbench.units import format_count, format_ms, format_percent

_CLOCKS = {
    "server": "the server's own, for each token: its sampling included, the network not",
    "client": "this program's, as tokens arrive: sampling, the server's queue and the network included",
    "engine": "",
}


def serving_in(run: Run) -> Serving | None:
    """Return how a server answered; None of a run without one."""
    serving: Serving | None = getattr(run.result, "serving", None)
    return serving


def serving_facts(run: Run) -> list[tuple[str, str]]:
    """Return names and values for a section of the run's details; none of a run without a server. Printable."""
    serving, setup = serving_in(run), run.head.setup
    if serving is None:
        return []
    url = f" at {setup.base_url}" if isinstance(setup, EndpointConfig) else ""
    draft = ""
    if serving.n_drafted:
        share = format_percent((serving.n_accepted or 0) / serving.n_drafted)
        accepted = f"{format_count(serving.n_accepted)} of {format_count(serving.n_drafted)} drafted tokens"
        draft = f"{accepted} accepted, {share}"
    return [
        ("server", plain(f"{serving.server}{url}")),
        ("clock", clock_text(serving)),
        ("network", _network(serving)),
        (
            "TTFT",
            "" if serving.ttft_ms is None else f"{format_ms(serving.ttft_ms)} ms, from sending to the first token",
        ),
        ("chunks", _chunks(serving)),
        ("speculation", draft),
        *(("not as asked" if index == 0 else "", plain(each)) for index, each in enumerate(serving.remarks)),
    ]


def clock_text(serving: Serving) -> str:
    """Return whose clock timed the tokens, and what that includes."""
    return _CLOCKS[serving.clock]


def serving_caption(run: Run) -> str:
    """Return the same in one line below a table; empty of a run without a server. Printable."""
    serving = serving_in(run)
    if serving is None:
        return ""
    parts = [f"{serving.server}; clock of the tokens: {clock_text(serving)}", _network(serving), _chunks(serving)]
    parts += [f"not as asked: {each}" for each in serving.remarks]
    return plain("; ".join(filter(None, parts)))


def _network(serving: Serving) -> str:
    if serving.round_trip_ms is None:
        return ""
    jitter = "" if serving.jitter_ms is None else f"; arrival adds ±{format_ms(serving.jitter_ms)} ms to a token's time"
    return f"{format_ms(serving.round_trip_ms)} ms to the first byte of an empty request{jitter}"


def _chunks(serving: Serving) -> str:
    """That tokens came several at once."""
    if not serving.n_tokens_together:
        return ""
    share = serving.n_tokens_together / max(1, serving.n_tokens)
    count = f"{format_count(serving.n_tokens_together)} of {format_count(serving.n_tokens)} tokens came several at once"
    what = "left out of W, B and percentiles" if share <= RARE else "timed in blocks, so there are no percentiles"
    return f"{count}, {what}"
