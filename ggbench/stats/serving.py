"""How a server answered over all requests of a run."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from ggbench.runs.serving import RequestTiming, ServerFound, Serving


def serving_of(server: ServerFound | None, requests: Sequence[RequestTiming]) -> Serving | None:
    """Return what the requests have in common; None of a run without a server, or without a request."""
    if server is None or not requests:
        return None
    decodes = [each for each in requests if each.series]
    waits = [(each.first_token_ns - each.sent_ns) / 1e6 for each in decodes if each.first_token_ns is not None]
    jitters = [each.jitter_ns / 1e6 for each in decodes if each.jitter_ns is not None]
    drafts = [each for each in decodes if each.n_drafted is not None]
    trips = server.round_trip_ns
    return Serving(
        server=" ".join(filter(None, (server.kind, server.version))),
        clock="client" if any(each.clock == "client" for each in requests) else "server",
        n_requests=len(requests),
        n_tokens=sum(each.n_tokens for each in decodes),
        n_tokens_together=sum(each.n_tokens_together for each in decodes),
        ttft_ms=statistics.median(waits) if waits else None,
        round_trip_ms=statistics.median(trips) / 1e6 if trips else None,
        jitter_ms=statistics.median(jitters) if jitters else None,
        n_drafted=sum(each.n_drafted or 0 for each in drafts) if drafts else None,
        n_accepted=sum(each.n_accepted or 0 for each in drafts) if drafts else None,
        remarks=tuple(dict.fromkeys(remark for each in requests for remark in each.remarks)),
    )
