"""Part files on disk."""

import threading
from pathlib import Path

import pytest

from ggbench.errors import NetworkError
from ggbench.hub.part_file import locked


def go_on() -> None:
    """Nothing stops it."""


class Enough(Exception):
    """Something does."""


def stop() -> None:
    raise Enough


def test_a_lock_is_held_by_one_and_waiting_for_it_can_be_stopped(tmp_path: Path) -> None:
    lock = tmp_path / "locks" / "a.lock"
    order: list[str] = []
    waits = threading.Event()

    def wait_for_it() -> None:
        with locked(lock, waits.set):
            order.append("second")

    with locked(lock, go_on):
        with pytest.raises(Enough), locked(lock, stop):
            order.append("never")
        second = threading.Thread(target=wait_for_it)
        second.start()
        assert waits.wait(10)
        order.append("first")
    second.join()
    assert order == ["first", "second"]


def test_another_that_receives_nothing_for_long_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ggbench.hub.part_file._LOCK_LIMIT_S", 0)
    lock = tmp_path / "a.lock"
    with locked(lock, go_on), pytest.raises(NetworkError, match="received nothing") as raised, locked(lock, go_on):
        pass
    assert str(lock) in raised.value.message
