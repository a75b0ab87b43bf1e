"""Asks which cases to measure before a run by input length and batch size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from msgspec.structs import replace

from ggbench.experiments.speed.record import INPUTS, N_GEN, SpeedSettings
from ggbench.tui.screens.fields_dialog import FieldsDialog, TypedField, typed_text
from ggbench.units import format_count, parse_batch_sizes, parse_duration, parse_tokens

_DEFAULTS = SpeedSettings()


def _token_list(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(parse_tokens(part) for part in text.split(",")))


class SpeedDialog(FieldsDialog[SpeedSettings]):
    """Ends with the settings, or with None for no run."""

    WHAT: ClassVar[str] = "Speed by input length and batch"
    ABOUT: ClassVar[str] = (
        "Each case reads a prompt for every sequence and generates tokens for all at once. The cheap cases run first; "
        "one that would not end in time is forecast and skipped, one that does not fit has its reason."
    )
    FIELDS: ClassVar[Sequence[TypedField]] = (
        TypedField("inputs", "input lengths", f"as published: 1 to {format_count(INPUTS[-1])}", _token_list),
        TypedField("n_gen", "tokens generated", format_count(N_GEN), parse_tokens),
        TypedField("batches", "batch sizes", "1; or 1,8,32", parse_batch_sizes),
        TypedField("within_s", "time limit", "10m for each quant", parse_duration),
    )

    def __init__(self, names: Sequence[str], settings: SpeedSettings) -> None:
        super().__init__(names, {field.name: typed_text(settings, _DEFAULTS, field.name) for field in self.FIELDS})

    def asked(self, values: Mapping[str, Any]) -> SpeedSettings:
        """Return the settings. Raises UsageError for numbers that make no case."""
        return replace(_DEFAULTS, **values)
