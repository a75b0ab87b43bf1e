"""Asks what should be faster, and how long to search, before settings are tuned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, get_args

from msgspec.structs import replace
from textual.widget import Widget

from ggbench.engines.llama.config import KV_TYPES
from ggbench.errors import UsageError
from ggbench.experiments.tune.record import DEPTHS, Objective, TuneSettings
from ggbench.tui.screens.fields_dialog import FieldsDialog, TypedField, line_of, typed_text
from ggbench.tui.screens.options import ChoiceField
from ggbench.units import format_count, parse_duration, parse_tokens

_DEFAULTS = TuneSettings()
_OBJECTIVES: dict[str, Objective] = {each: each for each in get_args(Objective)}


def _depths(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(parse_tokens(part, least=0) for part in text.split(",")))


def _kv_types(text: str) -> tuple[str, ...]:
    types = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",")))
    if unknown := [each for each in types if each not in KV_TYPES]:
        raise UsageError(f"{unknown[0]!r} is not a type of a KV cache", f"llama.cpp has {', '.join(KV_TYPES)}")
    return types


class TuneDialog(FieldsDialog[TuneSettings]):
    """Ends with the settings of the search, or with None for none."""

    WHAT: ClassVar[str] = "Tune the settings"
    ABOUT: ClassVar[str] = (
        "Races threads, flash attention and other settings against the options as they are now, and measures the gain "
        "of the best. Often nothing beats the defaults. a takes over what was found."
    )
    FIELDS: ClassVar[Sequence[TypedField]] = (
        TypedField("depths", "depths", f"{' and '.join(map(format_count, DEPTHS))} tokens; or 0,32k", _depths),
        TypedField("within_s", "time limit", "10m for each quant", parse_duration),
        TypedField("kv_types", "KV types to try", "none, as they cost quality; or q8_0", _kv_types),
    )

    def __init__(self, names: Sequence[str], settings: TuneSettings) -> None:
        super().__init__(names, {field.name: typed_text(settings, _DEFAULTS, field.name) for field in self.FIELDS})
        self._objective = settings.objective

    def lines_above(self) -> Iterable[Widget]:
        yield line_of(
            "faster", ChoiceField(tuple(_OBJECTIVES), self._objective, id="objective"), "decode, prompts or both"
        )

    def asked(self, values: Mapping[str, Any]) -> TuneSettings:
        """Return the settings. Raises UsageError for numbers that make no search."""
        objective = _OBJECTIVES[self.query_one("#objective", ChoiceField).value]
        return replace(_DEFAULTS, objective=objective, **values)
