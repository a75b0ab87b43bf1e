"""Asks which cases to measure before a run by input length and batch size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ggbench.errors import UsageError
from ggbench.records.speed_cases import INPUTS, MOST_SEQS, N_GEN, SpeedSettings
from ggbench.tui.screens.fields_dialog import FieldsDialog, TypedField
from ggbench.units import format_count, parse_duration, parse_tokens

_DEFAULTS = SpeedSettings()


def _token_list(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(parse_tokens(part) for part in text.split(",")))


def _batches(text: str) -> tuple[int, ...]:
    try:
        return tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise UsageError(f"{text!r} is not a list of batch sizes", f"write 1,8,32; {MOST_SEQS} at most") from None


class SpeedDialog(FieldsDialog[SpeedSettings]):
    """Ends with the settings, or with None for no run."""

    WHAT: ClassVar[str] = "Speed by input length and batch"
    ABOUT: ClassVar[str] = (
        "Each case reads a prompt for every sequence and generates tokens for all at once. The cheap cases run first; "
        "one that would not end in time is forecast and skipped, one that does not fit has its reason."
    )
    FIELDS: ClassVar[Sequence[TypedField]] = (
        TypedField("inputs", "input lengths", f"1,6k...{format_count(INPUTS[-1])}, as published", _token_list),
        TypedField("n_gen", "tokens generated", format_count(N_GEN), parse_tokens),
        TypedField("batches", "batch sizes", "1; or 1,8,32", _batches),
        TypedField("within_s", "time limit", "10m for each quant", parse_duration),
    )

    def __init__(self, names: Sequence[str], settings: SpeedSettings) -> None:
        super().__init__(names, {field.name: _typed(settings, field.name) for field in self.FIELDS})

    def asked(self, values: Mapping[str, Any]) -> SpeedSettings:
        """Return the settings. Raises UsageError for numbers that make no case."""
        return replace(_DEFAULTS, **values)


def _typed(settings: SpeedSettings, name: str) -> str:
    """What stood in the field when the dialog was last closed."""
    value = getattr(settings, name)
    if value is None or value == getattr(_DEFAULTS, name):
        return ""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:g}s" if name == "within_s" else str(value)
