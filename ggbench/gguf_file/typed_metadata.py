"""Typed access to the metadata of one architecture: a value of the wrong kind is refused, not coerced."""

from __future__ import annotations

from collections.abc import Mapping

from ggbench.errors import BadFile
from ggbench.gguf_file.parser import ArrayLength

_LARGEST = 1 << 31


class TypedMetadata:
    """The values of one architecture; keys are gguf's, `{arch}.block_count`."""

    def __init__(self, name: str, architecture: str, values: Mapping[str, object]) -> None:
        self._name, self._architecture, self._values = name, architecture, values

    def count(self, key: str, default: int = 0) -> int:
        """Return a whole number, `default` if it is missing. Raises BadFile for any other value."""
        value = self._values.get(self._full(key))
        return default if value is None else self._checked(key, value)

    def per_layer(self, key: str, n_layer: int) -> tuple[int, ...] | None:
        """Return a number of each layer, from an array or from one number for all; None if the key is missing.

        Raises BadFile for another number of values or a value that is not a whole number.
        """
        value = self._values.get(self._full(key))
        if value is None:
            return None
        if not isinstance(value, list):
            return (self._checked(key, value),) * n_layer
        if len(value) != n_layer:
            raise self.wrong(f"{self._full(key)!r} has {len(value)} values for {n_layer} layers")
        return tuple(self._checked(key, item) for item in value)

    def flags(self, key: str, n_layer: int) -> tuple[bool, ...] | None:
        """Return a flag of each layer if the value is an array; None if it is missing or one number."""
        value = self._values.get(self._full(key))
        if not isinstance(value, list):
            return None
        if len(value) != n_layer:
            raise self.wrong(f"{self._full(key)!r} has {len(value)} values for {n_layer} layers")
        return tuple(map(bool, value))

    def has(self, key: str) -> bool:
        """Return whether the header has this key."""
        return self._full(key) in self._values

    def has_any(self, *beginnings: str) -> bool:
        """Return whether any key begins with one of these."""
        full = tuple(map(self._full, beginnings))
        return any(key.startswith(full) for key in self._values)

    def wrong(self, what: str) -> BadFile:
        """Return the error for a header with impossible values."""
        return BadFile(f"{self._name}: {what}", "convert the model again")

    def _full(self, key: str) -> str:
        return key.format(arch=self._architecture)

    def _checked(self, key: str, value: object) -> int:
        if isinstance(value, bool | ArrayLength) or not isinstance(value, int) or not 0 <= value < _LARGEST:
            raise self.wrong(f"{self._full(key)!r} is {str(value)[:40]!r}, not a count")
        return value
