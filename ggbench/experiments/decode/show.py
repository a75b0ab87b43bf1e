"""A decode: speed with W and B, and latency against position."""

from __future__ import annotations

from typing import ClassVar

from ggbench.experiments.decode.record import DecodeResult
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show import UNKNOWN
from ggbench.show.columns import depths_text
from ggbench.show.quants import QuantPresenter
from ggbench.show.run_documents import RunDocuments, quant_documents
from ggbench.show.text import b_text, tok_s_text, w_text
from ggbench.stats.decode_timing import DecodeWindow
from ggbench.units import format_number, with_unit

DOCUMENTS = quant_documents("decode", "A decode: latency of every token against its position.")


class DecodePresenter(QuantPresenter):
    kind: ClassVar[str] = "decode"
    documents: ClassVar[RunDocuments] = DOCUMENTS
    plotted: ClassVar[tuple[type, ...]] = (DecodeWindow,)

    def answer(self, run: Run) -> str:
        """`29.3 ±0.8 tok/s  W 31 (20–53) tokens/ms  B 25 ±5 ms`; the speed alone if too few tokens were timed."""
        result = run.result
        if not isinstance(result, DecodeResult):
            return ""
        doubt = "  unsteady" if run.unsteady else ""
        if result.depths:
            return f"{with_unit(depths_text(QuantSummary.of([run])), 'tok/s')}{doubt}"
        if result.latency is None:
            return ""
        speed = with_unit(tok_s_text(result.latency), "tok/s")
        if result.n_seqs > 1:
            together = with_unit(format_number(result.tok_s_together), "tok/s")
            speed = f"{result.n_seqs} users: {speed} each, {together} together"
        fit = result.fit
        texts = {} if fit is None else {"W": (w_text(fit), "tokens/ms"), "B": (b_text(fit), "ms")}
        known = [f"  {name} {text} {unit}" for name, (text, unit) in texts.items() if text != UNKNOWN]
        return f"{speed}{''.join(known)}{doubt}"


PRESENTER = DecodePresenter()
