"""The base of the types that cross layers: frozen, equal by value, stored and printed as JSON."""

from __future__ import annotations

from typing import dataclass_transform

import msgspec


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Record(msgspec.Struct, frozen=True):
    """A frozen struct; type checkers know its heirs as frozen without being told (PEP 681)."""
