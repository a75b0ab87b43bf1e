"""A prefill: the time to read a prompt against its length."""

from __future__ import annotations

from ggbench.runs.run import Run
from ggbench.show.figure import Figure, bounded_text
from ggbench.show.quants import QuantPresenter
from ggbench.show.run_documents import MEASURED, RunDocuments
from ggbench.show.run_figures import estimate, unsteady_mark
from ggbench.show.words import say
from ggbench.stats.decode_timing import PrefillSpeed
from ggbench.stats.intervals import Estimate
from ggbench.units import format_ms


def _longest(run: Run) -> PrefillSpeed | None:
    """Return the longest prompt of an empty cache, or of a filled one if there is no other; None if none was timed."""
    return max(run.prefills, key=lambda each: (each.n_depth == 0, each.n_prompt), default=None)


def _speed(run: Run) -> Estimate | float | None:
    longest = _longest(run)
    return None if longest is None else estimate(longest.tok_s, longest.tok_s_ci95)


_HEADLINE = Figure(
    "prompt_tok_s",
    "prompt",
    _speed,
    bounded_text,
    "tok/s",
    "Speed of the longest prompt.",
    "more",
    mark=unsteady_mark,
    is_estimate=True,
)


class PrefillPresenter(QuantPresenter):
    kind = "prefill"
    documents = RunDocuments("prefill", (_HEADLINE, *MEASURED), "Prompts of several lengths.")
    has_samples = False
    figures = (_HEADLINE,)
    headline = _HEADLINE

    def answer(self, run: Run) -> str:
        """Return the speed and the time of the longest prompt; empty if none was timed."""
        longest = _longest(run)
        if longest is None:
            return ""
        return say(
            "prefill.prompt",
            speed=_HEADLINE.text(run),
            n_prompt=longest.n_prompt,
            ms=format_ms(longest.prefill_ms),
        )


PRESENTER = PrefillPresenter()
