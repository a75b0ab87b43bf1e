"""What `cluster serve` reports of its clients."""

import queue

from ggbench.engines.llama.rpc_server import lasting


def changes(*states: bool | None) -> queue.SimpleQueue[bool | None]:
    """What the server has printed so far; None is its end."""
    found: queue.SimpleQueue[bool | None] = queue.SimpleQueue()
    for state in states:
        found.put(state)
    return found


def test_a_client_that_stays_is_reported_once_and_once_when_it_has_left() -> None:
    found = changes(True, False, True)
    reported = lasting(found, 0.001)
    assert next(reported)
    for state in (False, True, False):
        found.put(state)
    assert not next(reported)
    found.put(None)
    assert not list(reported)
