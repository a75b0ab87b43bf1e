"""The rate and remaining time of a transfer, on a clock that the test advances."""

from ggbench.commands.downloads import TransferRate
from ggbench.units import MIB


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_rate_and_remaining_time() -> None:
    clock = Clock()
    rate = TransferRate(clock)
    rate.update(400 * MIB, 1000 * MIB)
    assert (rate.rate_bytes_per_s, rate.remaining_s) == (None, None)
    assert rate.text() == "400.0 MiB of 1000 MiB"
    clock.now = 2.0
    rate.update(500 * MIB, 1000 * MIB)
    assert rate.rate_bytes_per_s == 50 * MIB
    assert rate.text() == "500.0 MiB of 1000 MiB, 50.0 MiB/s, 0:10 left"
    clock.now = 12.0
    rate.update(1000 * MIB, 1000 * MIB)
    assert "left" not in rate.text()


def test_the_rate_covers_the_last_seconds() -> None:
    clock = Clock()
    rate = TransferRate(clock)
    for second in range(100):
        clock.now = float(second)
        rate.update(min(second, 50) * 10 * MIB + max(0, second - 50) * MIB, 1000 * MIB)
    assert rate.rate_bytes_per_s is not None
    assert round(rate.rate_bytes_per_s / MIB, 1) == 1.0


def test_the_rate_counts_moved_bytes() -> None:
    clock = Clock()
    rate = TransferRate(clock)
    rate.update(0, 1000 * MIB, 0)
    clock.now = 1.0
    rate.update(500 * MIB, 1000 * MIB, 0)
    assert rate.text() == "500.0 MiB of 1000 MiB"
    clock.now = 2.0
    rate.update(600 * MIB, 1000 * MIB, 100 * MIB)
    assert rate.text() == "600.0 MiB of 1000 MiB, 50.0 MiB/s, 0:08 left"


def test_a_restart_gives_no_negative_rate() -> None:
    """A file with a wrong sha256 is restarted from zero."""
    clock = Clock()
    rate = TransferRate(clock)
    for second, done in enumerate((0, 500, 100, 200)):
        clock.now = float(second)
        rate.update(done * MIB, 1000 * MIB)
    assert rate.rate_bytes_per_s == 100 * MIB
