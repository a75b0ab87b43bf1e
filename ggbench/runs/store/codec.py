"""Frozen records as JSON and back. A record that this ggbench cannot read is None with the reason, never an error."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from ggbench.errors import UsageError

_Record = TypeVar("_Record")


def encode(record: object) -> str:
    """JSON of a frozen record."""
    return msgspec.json.encode(_storable(msgspec.to_builtins(record))).decode()


def decode(text: str, record_type: type[_Record]) -> tuple[_Record | None, str]:
    """The record and "", or None and the reason. Fields that this ggbench does not know are skipped."""
    try:
        return msgspec.json.decode(text, type=record_type), ""
    except (msgspec.DecodeError, TypeError, ValueError, ArithmeticError, UsageError) as error:
        return None, f"written by another version of ggbench: {error}"


def storable_text(text: str) -> str:
    r"""Text that UTF-8 can hold: the odd bytes of a Linux file name come as lone surrogates and are spelt `\udc..`."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _storable(value: object) -> object:
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, list | tuple):
        return [_storable(item) for item in value]
    if isinstance(value, dict):
        return {key: _storable(item) for key, item in value.items()}
    return value
