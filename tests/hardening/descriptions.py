"""Machines described on a command line, by properties: hypothesis looks for the texts that break one."""

import math
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ggbench.errors import UsageError
from ggbench.machine.description import Device, MainMemory, describe_machine
from ggbench.machine.known_devices import find_device, known_devices
from ggbench.sizing.budget import described_budget
from tests.hardening.trials import Trials, unprintable

_NUMBERS = st.integers(-1, 10**20).map(str) | st.floats().map(repr) | st.sampled_from(("0", "1e999", "٣", "1_0", "0x8"))
_SIZES = st.tuples(_NUMBERS, st.sampled_from(("GiB", "GB", "G", "MiB", "tb", "Gb", ""))).map("".join)
_RATES = st.tuples(_NUMBERS, st.sampled_from(("GB/s", "GiB/s", "gbps", "MB/s", ""))).map("".join) | st.tuples(
    st.sampled_from(("ddr5-", "LPDDR5X-", "ddr9-")), _NUMBERS, st.sampled_from(("", "x", "x2", "×12", "x0"))
).map("".join)
_IDS = st.sampled_from([device.id for device in known_devices()])
_PLACES = st.tuples(_SIZES, _RATES).map("@".join) | _SIZES | _IDS | _RATES | st.text(max_size=12)
_GPUS = st.lists(
    st.tuples(_PLACES, st.sampled_from(("", "x2", " X 16", "*3", "x99", "x٢"))).map("".join), min_size=1, max_size=3
).map(",".join)
_MACHINES = st.tuples(
    st.lists(_GPUS, max_size=2), st.none() | _PLACES, st.none() | _SIZES, st.none() | _RATES | st.text(max_size=8)
)
_SPELLINGS = st.tuples(
    st.sampled_from(known_devices()), st.sampled_from((str.upper, str.title)), st.sampled_from("- _")
)


def described_machines(n: int) -> Trials:
    """Try each property with `n` examples; a failure is reported by the smallest that hypothesis finds."""
    row = Trials("described machines, by properties")
    for name, strategy, holds in _PROPERTIES:
        _try(row, n, name, strategy, holds)
    return row


def _try(row: Trials, n: int, name: str, strategy: st.SearchStrategy[Any], holds: Callable[[Any], None]) -> None:
    @settings(
        max_examples=n, derandomize=True, database=None, deadline=None, phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck), print_blob=False,
    )  # fmt: skip
    @given(strategy)
    def attempt(drawn: Any) -> None:  # noqa: ANN401 - of each property
        row.tried += 1
        holds(drawn)

    try:
        attempt()
    except Exception as error:  # of any kind: the row counts it
        row.tracebacks += 1
        notes = " ".join(getattr(error, "__notes__", ()))
        row.fault(f"{name}: {type(error).__name__}: {error}; {notes}"[:600])


def _is_planned_for_or_refused(drawn: tuple[list[str], str | None, str | None, str | None]) -> None:
    gpus, ram, vram, rate = drawn
    try:
        machine = describe_machine(gpus, ram, vram=vram, rate=rate)
        budget = described_budget(machine, reserve_bytes=None)
    except UsageError as error:
        assert error.message and error.hint and not unprintable(f"{error.message}{error.hint}")
        assert "\n" not in error.message
        return
    assert 0 < budget.usable_bytes <= budget.memory_bytes
    assert len(budget.devices) == len(machine.devices) <= 16
    places: list[Device | MainMemory] = [*machine.devices, *([machine.host] if machine.host else [])]
    assert all(place.memory_bytes is None or place.memory_bytes > 0 for place in places)
    assert all(place.bandwidth is None or 0 < place.bandwidth.bytes_per_s < math.inf for place in places)


def _is_found_in_any_spelling(drawn: tuple[Any, Callable[[str], str], str]) -> None:
    device, changed, gap = drawn
    assert find_device(changed(device.id).replace("-", gap)) == device


_PROPERTIES: tuple[tuple[str, st.SearchStrategy[Any], Callable[[Any], None]], ...] = (
    ("a machine is planned for or refused in a line", _MACHINES, _is_planned_for_or_refused),
    ("a known card is found in any spelling", _SPELLINGS, _is_found_in_any_spelling),
)
