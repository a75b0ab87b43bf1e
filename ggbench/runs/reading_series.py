"""Readings of the machine during a run, as an array for each quantity: in a month there are millions."""

from __future__ import annotations

import functools
import math
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import msgspec

from ggbench.machine.records import GpuReading, MachineReading

if TYPE_CHECKING:
    from numpy.typing import NDArray

_T = TypeVar("_T", bound=msgspec.Struct)
_CODES: dict[object, str] = {int: "q", int | None: "d", float | None: "d"}
"""Type codes of `array` for the types of fields; None is NaN. Integers that may be None are exact up to 2^53."""
_fields = functools.cache(msgspec.structs.fields)


class _Columns(Generic[_T]):
    """Records of one type by field: numbers as arrays, other values as lists, in which equal ones are one object."""

    def __init__(self, record_type: type[_T], records: Sequence[_T] = (), *, without: str = "") -> None:
        """Raises OverflowError for an integer of more than 64 bits."""
        self._shared: dict[object, object] = {}
        fields = _fields(record_type)
        self._kinds: dict[str, object] = {each.name: each.type for each in fields if each.name != without}
        self._columns: dict[str, array[Any] | list[Any]] = {}
        columns = list(map(list, zip(*map(msgspec.structs.astuple, records), strict=True)))
        for each, values in zip(fields, columns or [[] for _ in fields], strict=True):
            code = _CODES.get(each.type)
            if code == "d":
                values = [math.nan if value is None else value for value in values]
            if each.name != without:
                self._columns[each.name] = array(code, values) if code else values

    def extend(self, other: _Columns[_T]) -> None:
        for name, column in self._columns.items():
            added = other._columns[name]
            if not isinstance(added, array):
                added = [self._shared.setdefault(each, each) for each in added]
            column.extend(added)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return the values of a record's fields."""
        found = {name: column[index] for name, column in self._columns.items()}
        for name, kind in self._kinds.items():
            if _CODES.get(kind) == "d" and math.isnan(found[name]):
                found[name] = None
            elif kind == int | None:
                found[name] = int(found[name])
        return found

    def numbers(self, name: str) -> NDArray[Any]:
        import numpy as np

        return np.array(self._columns[name])


class Readings(Sequence[MachineReading]):
    """Readings in order of time. Indexing builds a reading; `column` has all values of a field."""

    def __init__(self, readings: Iterable[MachineReading] = ()) -> None:
        self._machine, self._gpus = _Columns(MachineReading, without="gpus"), _Columns(GpuReading)
        self._ends = array("q", [0])
        """Before each reading and after the last, the number of GPUs read so far."""
        self.extend(readings)

    @classmethod
    def of(cls, readings: Sequence[MachineReading]) -> Readings:
        return readings if isinstance(readings, cls) else cls(readings)

    def extend(self, readings: Iterable[MachineReading]) -> None:
        """Add readings. Raises OverflowError, with none added, for an integer of more than 64 bits."""
        readings = tuple(readings)
        machine = _Columns(MachineReading, readings, without="gpus")
        gpus = _Columns(GpuReading, [gpu for each in readings for gpu in each.gpus])
        self._machine.extend(machine)
        self._gpus.extend(gpus)
        ends = accumulate((len(each.gpus) for each in readings), initial=self._ends.pop())
        self._ends.extend(ends)

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, index: int) -> MachineReading: ...
    @overload
    def __getitem__(self, index: slice) -> list[MachineReading]: ...
    def __getitem__(self, index: int | slice) -> MachineReading | list[MachineReading]:
        if isinstance(index, slice):
            return [self[each] for each in range(len(self))[index]]
        index = range(len(self))[index]
        gpus = (GpuReading(**self._gpus[each]) for each in range(*self._ends[index : index + 2]))
        return MachineReading(**self._machine[index], gpus=tuple(gpus))

    def column(self, name: str) -> NDArray[Any]:
        """Return all values of a field of numbers, NaN for None."""
        return self._machine.numbers(name)

    @property
    def gpu_indices(self) -> tuple[int, ...]:
        """Return NVML's indices of all GPUs that were read, ascending."""
        return tuple(sorted(set(self._gpus.numbers("index").tolist())))

    def gpu_column(self, index: int, name: str) -> NDArray[Any]:
        """Return all values of a GPU's field of numbers, NaN for None."""
        found: NDArray[Any] = self._gpus.numbers(name)[self._gpus.numbers("index") == index]
        return found
