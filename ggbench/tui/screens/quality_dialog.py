"""Asks what to score before a quality run: the base, the text, and how much of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from msgspec.structs import replace
from textual.widget import Widget
from textual.widgets import Static

from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import UsageError
from ggbench.experiments.quality.record import N_CTX
from ggbench.text import plain
from ggbench.tui.run_requests import LARGEST, NO_BASE, QualityAsked
from ggbench.tui.screens.fields_dialog import FieldsDialog, TypedField, line_of, typed_text
from ggbench.tui.screens.options import ChoiceField
from ggbench.tui.setup_fields import whole_number
from ggbench.units import parse_duration, parse_tokens

_MOST_CHUNKS = 1_000_000
_LEAST_N_CTX = 4


def _n_ctx(text: str) -> int:
    n_ctx = parse_tokens(text)
    if n_ctx < _LEAST_N_CTX:
        raise UsageError(f"a chunk of {n_ctx} tokens is too short to score", f"write {_LEAST_N_CTX} or more")
    return n_ctx


class QualityDialog(FieldsDialog[QualityAsked]):
    """Ends with what to score, or with None for no run."""

    WHAT: ClassVar[str] = "Quality"
    ABOUT: ClassVar[str] = (
        "Scores the second half of each chunk of a text file, of wikitext-2 or of Python's manual. What is scored is "
        "kept when you skip (s) or cancel (c) the run; the same run started again goes on there."
    )
    FIELDS: ClassVar[Sequence[TypedField]] = (
        TypedField("text", "text", "Python's manual; wikitext-2", str),
        TypedField("n_chunks", "chunks", "the whole text", whole_number("a number of chunks", 1, _MOST_CHUNKS)),
        TypedField("within_s", "time limit", "none; or 10m for each quant", parse_duration),
        TypedField("n_ctx", "tokens a chunk", f"{N_CTX}, as llama-perplexity", _n_ctx),
    )

    def __init__(self, names: Sequence[str], bases: Sequence[str], setup: LlamaConfig, asked: QualityAsked) -> None:
        """`bases` are the quants that they can be compared with, the largest first."""
        super().__init__(names, {field.name: typed_text(asked, QualityAsked(), field.name) for field in self.FIELDS})
        self._bases = (LARGEST, *bases, NO_BASE)
        self._largest = f"the largest here is {plain(bases[0])}" if bases else "the largest here"
        self._setup, self._asked = setup, asked

    def lines_above(self) -> Iterable[Widget]:
        base = self._asked.base if self._asked.base in self._bases else LARGEST
        yield line_of("compared with", ChoiceField(self._bases, base, id="base"), self._largest)

    def lines_below(self) -> Iterable[Widget]:
        """The types of the KV cache."""
        types = "/".join(dict.fromkeys((self._setup.type_k, self._setup.type_v)))
        editor = Static(types, classes="fixed", markup=False)
        yield line_of("KV cache", editor, "by options (o); base: f16")

    def asked(self, values: Mapping[str, Any]) -> QualityAsked:
        """Return what to score."""
        return replace(QualityAsked(), base=self.query_one("#base", ChoiceField).value, **values)
