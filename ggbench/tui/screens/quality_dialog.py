"""Asks what to score before a quality run: the base, the text, and how much of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widget import Widget
from textual.widgets import Input, Label, Static

from ggbench.errors import UsageError
from ggbench.plain import plain
from ggbench.records.quality import N_CTX
from ggbench.records.setup import LlamaSetup
from ggbench.tui.run_requests import LARGEST, NO_BASE, QualityAsked
from ggbench.tui.screens.dialogs import Dialog
from ggbench.tui.screens.options import ChoiceField
from ggbench.tui.setup_fields import whole_number
from ggbench.units import format_count, parse_duration, parse_tokens

_HINT = "enter starts · esc closes"
_MOST_CHUNKS = 1_000_000
_LEAST_N_CTX = 4


@dataclass(frozen=True, slots=True)
class _Field:
    """One line of the dialog that is typed."""

    name: str
    label: str
    unset: str
    """What an empty field means."""
    parse: Callable[[str], object]
    """Read what was typed. Raises UsageError."""


def _n_ctx(text: str) -> int:
    n_ctx = parse_tokens(text)
    if n_ctx < _LEAST_N_CTX:
        raise UsageError(f"a chunk of {n_ctx} tokens is too short to score", f"write {_LEAST_N_CTX} or more")
    return n_ctx


_FIELDS = (
    _Field("text", "text", "Python's own manual; or a path", str),
    _Field("n_chunks", "chunks", "the whole text", whole_number("a number of chunks", 1, _MOST_CHUNKS)),
    _Field("within_s", "time limit", "none; or 10m for each quant", parse_duration),
    _Field("n_ctx", "tokens a chunk", f"{N_CTX}, as llama-perplexity", _n_ctx),
)


class QualityDialog(Dialog["QualityAsked | None"]):
    """Ends with what to score, or with None for no run."""

    AUTO_FOCUS = "#base"
    DEFAULT_CSS = """
    QualityDialog {
        .dialog { padding: 1 2; }
        Horizontal { height: 1; }
        .label { width: 17; }
        Input, ChoiceField { width: 22; height: 1; border: none; padding: 0 1; background: $panel; }
        Input:focus, ChoiceField:focus { background: $primary; color: $text; text-style: bold; }
        .unset { width: 1fr; padding: 0 0 0 2; color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis; }
        #about { height: auto; padding: 1 0 0 0; }
        #about.-error { color: $text-error; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "apply", "Start"),
        Binding("escape", "dismiss", "Close"),
        Binding("down", "app.focus_next", show=False),
        Binding("up", "app.focus_previous", show=False),
    ]

    def __init__(self, names: Sequence[str], bases: Sequence[str], setup: LlamaSetup, asked: QualityAsked) -> None:
        """`names` are the quants to score, `bases` those that they can be compared with, the largest first."""
        super().__init__()
        self._names, self._setup, self._asked = names, setup, asked
        self._bases = (LARGEST, *bases, NO_BASE)
        self._largest = bases[0] if bases else ""

    def compose(self) -> ComposeResult:
        """Lay out a line for each choice, and what a run does."""
        with Vertical(classes="dialog") as sheet:
            what = plain(self._names[0]) if len(self._names) == 1 else f"{format_count(len(self._names))} quants"
            sheet.border_title = f"Quality of {what}"
            sheet.border_subtitle = _HINT
            with Horizontal():
                yield Label("compared with", classes="label", markup=False)
                base = self._asked.base if self._asked.base in self._bases else LARGEST
                yield ChoiceField(self._bases, base, id="base")
                largest = f"the largest here is {plain(self._largest)}" if self._largest else "the largest here"
                yield Static(largest, classes="unset", markup=False)
            for field in _FIELDS:
                with Horizontal():
                    yield Label(field.label, classes="label", markup=False)
                    yield Input(_typed(self._asked, field.name), placeholder="default", id=field.name, compact=True)
                    yield Static(f"default: {field.unset}", classes="unset", markup=False)
            with Horizontal():
                yield Label("KV cache", classes="label", markup=False)
                types = dict.fromkeys((self._setup.type_k, self._setup.type_v))
                yield Static(f" {'/'.join(types)}, the base's f16; o in the Library changes it", markup=False)
            yield Static(_ABOUT, id="about", markup=False)

    @on(Input.Changed)
    @on(ChoiceField.Changed)
    def _explain(self) -> None:
        """Drop an error."""
        about = self.query_one("#about", Static)
        about.set_class(False, "-error")
        about.update(_ABOUT)

    @on(Input.Submitted)
    def action_apply(self) -> None:
        """End with what the fields say; show the first that cannot be read."""
        values: dict[str, object] = {}
        for field in _FIELDS:
            editor = self.query_one(f"#{field.name}", Input)
            try:
                values[field.name] = field.parse(editor.value.strip()) if editor.value.strip() else None
            except UsageError as error:
                self._refuse(f"✗ {field.label}: {error.message}; {error.hint}", editor)
                return
        known = {name: value for name, value in values.items() if value is not None}
        self.dismiss(QualityAsked(base=self.query_one("#base", ChoiceField).value, **known))  # type: ignore[arg-type]

    def _refuse(self, text: str, editor: Widget) -> None:
        about = self.query_one("#about", Static)
        about.set_class(True, "-error")
        about.update(plain(text))
        editor.focus()


_ABOUT = (
    "Scores the second half of each chunk. What is scored is kept when you skip (s) or cancel (c) the run; the same "
    "run started again goes on there."
)


def _typed(asked: QualityAsked, name: str) -> str:
    """What stood in the field when the dialog was last closed."""
    value = getattr(asked, name)
    if value is None or value == getattr(QualityAsked(), name):
        return ""
    return f"{value:g}s" if name == "within_s" else str(value)
