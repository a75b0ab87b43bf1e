"""Asks what is needed before a pick: what for, how much context, how fast, how much may be lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, get_args

from textual.widget import Widget

from ggbench.decisions.pick.needs import LITTLE_LOSS, WORKLOADS, Needs, Preference
from ggbench.errors import UsageError
from ggbench.tui.screens.fields_dialog import FieldsDialog, TypedField, line_of
from ggbench.tui.screens.options import ChoiceField
from ggbench.units import parse_tokens

_BY_WORKLOAD = "by workload"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a number", "write e.g. 15 or 0.05") from None


class PickDialog(FieldsDialog[Needs]):
    """Ends with the needs, or with None for no pick."""

    WHAT: ClassVar[str] = "Pick"
    ABOUT: ClassVar[str] = (
        "chat: 512 tokens in, 300 out after 4k. agent: 16k in, 800 out after 48k. documents: 30k in, 500 out. longest: "
        "all the context that is answered at 15 tok/s. Nothing is measured or downloaded but headers."
    )
    FIELDS: ClassVar[Sequence[TypedField]] = (
        TypedField("given_n_ctx", "context", "what the workload needs", parse_tokens),
        TypedField("given_tok_s", "least speed", "any; tok/s of the answer", _number),
        TypedField("max_loss", "most loss", f"any; {LITTLE_LOSS:g} nats is little", _number),
    )

    def __init__(self, names: Sequence[str], needs: Needs) -> None:
        super().__init__(names, {field.name: _typed(needs, field.name) for field in self.FIELDS})
        self._needs = needs

    def lines_above(self) -> Iterable[Widget]:
        editor = ChoiceField(tuple(WORKLOADS), self._needs.workload.name, id="workload")
        yield line_of("for", editor, "← → changes what a turn is")

    def lines_below(self) -> Iterable[Widget]:
        """What decides among those that meet the needs."""
        choices = (_BY_WORKLOAD, *get_args(Preference))
        editor = ChoiceField(choices, self._needs.given_prefer or _BY_WORKLOAD, id="prefer")
        yield line_of("prefer", editor, "← → what decides")

    def asked(self, values: Mapping[str, Any]) -> Needs:
        """Return the needs. Raises UsageError for numbers that nothing can meet."""
        prefer = self.query_one("#prefer", ChoiceField).value
        return Needs(
            WORKLOADS[self.query_one("#workload", ChoiceField).value],
            given_prefer=None if prefer == _BY_WORKLOAD else prefer,  # type: ignore[arg-type]  # one of the choices
            **values,
        )


def _typed(needs: Needs, name: str) -> str:
    """What stood in the field when the dialog was last closed."""
    value = getattr(needs, name)
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
