"""A prefill: the time to read a prompt against its length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.console import Group, RenderableType

from ggbench.experiments.prefill.record import PrefillResult
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show.quants import QuantPresenter, prefill_table
from ggbench.show.run_documents import RunDocuments, quant_documents
from ggbench.show.text import tok_s_text
from ggbench.stats.decode_timing import PrefillSpeed
from ggbench.units import format_count, format_ms, format_number


def _longest(run: Run) -> PrefillSpeed | None:
    """Return the longest prompt of an empty cache, or of a filled one if there is no other; None if none was timed."""
    prefills = run.result.prefills if isinstance(run.result, PrefillResult) else ()
    return max(prefills, key=lambda each: (each.n_depth == 0, each.n_prompt), default=None)


class PrefillPresenter(QuantPresenter):
    kind: ClassVar[str] = "prefill"
    documents: ClassVar[RunDocuments] = quant_documents("prefill", "Prompts of several lengths.")
    has_samples: ClassVar[bool] = False

    def short_answer(self, run: Run) -> str:
        """Return `232 tok/s at 512`, for the longest prompt."""
        longest = _longest(run)
        if longest is None:
            return ""
        return f"{format_number(longest.tok_s)} tok/s at {format_count(longest.n_prompt)}"

    def answer(self, run: Run) -> str:
        """Return `prompt of 512: 2204.00 ms, 232 tok/s` for the longest prompt; empty if none was timed."""
        if (longest := _longest(run)) is None:
            return ""
        speed = f"{format_ms(longest.prefill_ms)} ms, {tok_s_text(longest)} tok/s"
        return f"prompt of {format_count(longest.n_prompt)}: {speed}"

    def table(self, runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
        return Group(*(prefill_table(QuantSummary.of([run])) for run in runs))


PRESENTER = PrefillPresenter()
