"""What is told of a transfer while it goes on, by a clock that the test moves."""

from __future__ import annotations

from ggbench.experiments.progress import FilePrepared

from ggbench.cli.transfer import ArrivalNotices, Preparation, TransferLines
from ggbench.experiments.transfer import Transfer
from ggbench.hub.arrivals import FileArrival
from ggbench.hub.records import RepoFile
from ggbench.units import MIB


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_rate_and_rest_of_a_transfer() -> None:
    """What was there before it began is done, and not counted as speed."""
    clock = Clock()
    transfer = Transfer(clock)
    transfer.note(400 * MIB, 1000 * MIB)
    assert (transfer.rate_bytes_per_s, transfer.left_s) == (None, None)
    assert transfer.text() == "400.0 MiB of 1000 MiB"
    clock.now = 2.0
    transfer.note(500 * MIB, 1000 * MIB)
    assert transfer.rate_bytes_per_s == 50 * MIB
    assert transfer.text() == "500.0 MiB of 1000 MiB, 50.0 MiB/s, 0:10 left"
    clock.now = 12.0
    transfer.note(1000 * MIB, 1000 * MIB)
    assert "left" not in transfer.text()


def test_the_rate_is_of_the_last_seconds() -> None:
    """A connection that has become slow is not told by its better days."""
    clock = Clock()
    transfer = Transfer(clock)
    for second in range(100):
        clock.now = float(second)
        transfer.note(min(second, 50) * 10 * MIB + max(0, second - 50) * MIB, 1000 * MIB)
    assert transfer.rate_bytes_per_s is not None
    assert round(transfer.rate_bytes_per_s / MIB, 1) == 1.0


def test_the_rate_is_of_what_was_moved() -> None:
    """Not of what was copied from this disk."""
    clock = Clock()
    transfer = Transfer(clock)
    transfer.note(0, 1000 * MIB, 0)
    clock.now = 1.0
    transfer.note(500 * MIB, 1000 * MIB, 0)
    assert transfer.text() == "500.0 MiB of 1000 MiB"
    clock.now = 2.0
    transfer.note(600 * MIB, 1000 * MIB, 100 * MIB)
    assert transfer.text() == "600.0 MiB of 1000 MiB, 50.0 MiB/s, 0:08 left"


def test_a_silence_is_told_once() -> None:
    """And again after something came; not while a file is copied or hashed."""
    clock, said = Clock(), list[str]()
    file = RepoFile("m.gguf", 100, None, "e" * 40)

    def after(seconds: float, arrival: FileArrival) -> list[str]:
        said.clear()
        for _ in range(round(seconds)):
            clock.now += 1
            notices.note([arrival])
        return list(said)

    notices = ArrivalNotices(said.append, clock)
    assert after(14, FileArrival(file, 10, kept_bytes=10)) == ["continues at 10 B"]
    assert after(60, FileArrival(file, 10, kept_bytes=10)) == ["no data for 15 s; trying again"]
    assert after(14, FileArrival(file, 20, moved_bytes=10, kept_bytes=10)) == []
    assert after(60, FileArrival(file, 20, moved_bytes=10, kept_bytes=10)) == ["no data for 15 s; trying again"]
    assert after(60, FileArrival(file, 100, moved_bytes=90, kept_bytes=10)) == []
    notices = ArrivalNotices(said.append, clock)
    assert after(60, FileArrival(file, 0, has_copy=True)) == ["copying from the cache"]


def test_starting_over_is_no_negative_rate() -> None:
    """A file whose sha256 was wrong begins again at nothing."""
    clock = Clock()
    transfer = Transfer(clock)
    for second, done in enumerate((0, 500, 100, 200)):
        clock.now = float(second)
        transfer.note(done * MIB, 1000 * MIB)
    assert transfer.rate_bytes_per_s == 100 * MIB


def test_lines_come_at_each_tenth_and_not_too_often() -> None:
    """A quick transfer says its end alone; a slow one each tenth; a very slow one that it still lives."""
    clock = Clock()

    def told(seconds_each: float, n_steps: int) -> int:
        lines: list[str] = []
        transfer = TransferLines(lines.append, clock)
        for step in range(n_steps + 1):
            transfer.note(step * MIB, n_steps * MIB)
            clock.now += seconds_each
        return len(lines)

    assert told(0.0001, 1000) == 1
    assert told(0.1, 1000) == 10
    assert 60 <= told(1.0, 1000) <= 100


def test_a_download_is_not_called_writing() -> None:
    """A twin is written, a file of the Hub is downloaded."""
    preparation = Preparation()
    assert preparation.text(FilePrepared(0, MIB)).startswith("writing 0 B of 1.00 MiB")
    assert preparation.text(FilePrepared(0, MIB, is_download=True)).startswith("downloading 0 B of")
