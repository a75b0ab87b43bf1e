"""A decode: speed with W and B, and latency against position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from ggbench.experiments.decode.record import DecodeResult
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show.columns import bench_columns
from ggbench.show.presenter import QuantPresenter
from ggbench.show.text import b_text, tok_s_text, w_text
from ggbench.stats.decode_timing import DecodeWindow
from ggbench.units import with_unit

if TYPE_CHECKING:
    from rich.console import RenderableType


class DecodePresenter(QuantPresenter):
    """Runs of kind `decode`."""

    kind: ClassVar[str] = "decode"
    plotted: ClassVar[tuple[type, ...]] = (DecodeWindow,)

    def answer(self, run: Run) -> str:
        """`29.3 ±0.8 tok/s  W 31 (20–53) tokens/ms  B 25 ±5 ms`; empty without a fit."""
        result = run.result
        if not isinstance(result, DecodeResult) or result.fit is None:
            return ""
        w, b = with_unit(w_text(result.fit), "tokens/ms"), with_unit(b_text(result.fit), "ms")
        doubt = "  unsteady" if result.unsteady else ""
        return f"{with_unit(tok_s_text(result.latency), 'tok/s')}  W {w}  B {b}{doubt}"

    def table(self, runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
        """The columns of `ggbench bench`."""
        from ggbench.show.quants import rows_table

        summaries = [QuantSummary.of([run]) for run in runs]
        return rows_table(summaries, bench_columns(summaries), width=width)


PRESENTER = DecodePresenter()
