"""The rate and the time left of work, on a clock that the test advances."""

from ggbench.commands.downloads import transfer_text
from ggbench.runs.progress import Pace
from ggbench.units import MIB


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_rate_and_remaining_time() -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.update(400 * MIB, 1000 * MIB)
    assert (pace.per_s, pace.left_s) == (None, None)
    assert transfer_text(pace) == "400.0 MiB of 1000 MiB"
    clock.now = 2.0
    pace.update(500 * MIB, 1000 * MIB)
    assert pace.per_s == 50 * MIB
    assert transfer_text(pace) == "500.0 MiB of 1000 MiB, 50.0 MiB/s, 0:10 left"
    clock.now = 12.0
    pace.update(1000 * MIB, 1000 * MIB)
    assert "left" not in transfer_text(pace)


def test_the_rate_covers_the_last_seconds() -> None:
    clock = Clock()
    pace = Pace(clock)
    for second in range(100):
        clock.now = float(second)
        pace.update(min(second, 50) * 10 * MIB + max(0, second - 50) * MIB, 1000 * MIB)
    assert pace.per_s is not None
    assert round(pace.per_s / MIB, 1) == 1.0


def test_the_rate_counts_moved_bytes() -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.update(0, 1000 * MIB, 0)
    clock.now = 1.0
    pace.update(500 * MIB, 1000 * MIB, 0)
    assert transfer_text(pace) == "500.0 MiB of 1000 MiB"
    clock.now = 2.0
    pace.update(600 * MIB, 1000 * MIB, 100 * MIB)
    assert transfer_text(pace) == "600.0 MiB of 1000 MiB, 50.0 MiB/s, 0:08 left"


def test_a_restart_gives_no_negative_rate() -> None:
    """A file with a wrong sha256 is restarted from zero."""
    clock = Clock()
    pace = Pace(clock)
    for second, done in enumerate((0, 500, 100, 200)):
        clock.now = float(second)
        pace.update(done * MIB, 1000 * MIB)
    assert pace.per_s == 100 * MIB
