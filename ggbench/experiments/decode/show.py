"""A decode: speed with W and B, and latency against position."""

from __future__ import annotations

import math

from ggbench.experiments.decode.record import DecodeResult, DecodeSettings
from ggbench.runs.run import Run
from ggbench.show.figure import is_bound
from ggbench.show.quants import QuantPresenter, speed_in
from ggbench.show.run_documents import MEASURED, RunDocuments
from ggbench.show.run_figures import FIGURES, estimate, w_text
from ggbench.show.words import say
from ggbench.stats.decode_timing import DecodeWindow
from ggbench.stats.intervals import Estimate
from ggbench.units import format_count, format_number

DOCUMENTS = RunDocuments(
    "decode", MEASURED, "A decode: latency of every token against its position.", several_as="bench"
)


class DecodePresenter(QuantPresenter):
    kind = "decode"
    documents = DOCUMENTS
    plotted = (DecodeWindow,)

    def answer(self, run: Run) -> str:
        """Return the speed, and how it falls with the context if enough tokens were timed."""
        result = run.result
        if not isinstance(result, DecodeResult):
            return ""
        if result.depths:
            return _at_depths(run)
        if result.latency is None:
            return ""
        speed = FIGURES["tok_s"].text(run)
        if result.n_seqs > 1:
            return say("decode.users", speed=speed, n_seqs=result.n_seqs, together=result.tok_s_together)
        n_gen = format_count(result.n_gen)
        if isinstance(run.head.settings, DecodeSettings) and result.n_gen < run.head.settings.n_gen:
            n_gen += f" of {format_count(run.head.settings.n_gen)}"
        return _along_context(run, speed, n_gen)


def _along_context(run: Run, speed: str, n_gen: str) -> str:
    """Return the speed, and how it falls with the context as far as that is known."""
    fit, more = run.fit, math.nan
    growth = None if fit is None else estimate(fit.w_tokens_per_ms, fit.w_ci95)
    b = FIGURES["b_ms"].text(run)
    key = "decode.speed"
    if fit is not None and fit.breaks:
        return say("decode.broken", speed=speed, n_gen=n_gen, b=b, w=w_text(fit))
    if isinstance(growth, Estimate) and is_bound(growth):
        key, more = "decode.bounded", 1e3 / growth.low
    elif fit is not None and fit.w_tokens_per_ms is not None:
        key, more = "decode.growing", 1e3 / fit.w_tokens_per_ms
    return say(key, speed=speed, n_gen=n_gen, b=b, more=format_number(more, 2))


def _at_depths(run: Run) -> str:
    first, last = run.depths[0], run.depths[-1]
    speed, other = map(speed_in(run).text, (first, last))
    key = "decode.depth" if first is last else "decode.depths"
    return say(key, speed=speed, depth=first.n_depth, other=other, other_depth=last.n_depth)


PRESENTER = DecodePresenter()
