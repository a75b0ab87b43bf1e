"""Time the steps of a decode in a worker, and report several at a time."""

from __future__ import annotations

import contextlib
import gc
import time
from array import array
from collections.abc import Callable, Iterator

from ggbench.engines.events import Event, Steps

_FLUSH_NS = 50_000_000
"""Minimum interval between messages with samples, so that sending does not disturb the measurement."""


@contextlib.contextmanager
def without_gc() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def time_steps(
    n_prompt: int, n_gen: int, step: Callable[[int], tuple[int, int | None]], emit: Callable[[Event], None]
) -> None:
    """Take `n_gen` steps, and report their times, also of those before a failure; nothing is sent while one is timed.

    `step` takes its number, from 0, and returns its nanoseconds and those of the sampler, None if it is not timed.
    """
    step_ns, sampler_ns = array("q"), array("q")
    n_sent, sent_at = 0, time.perf_counter_ns()

    def send() -> None:
        nonlocal n_sent, sent_at
        if n_sent < len(step_ns):
            emit(Steps(n_prompt + 1 + n_sent, step_ns[n_sent:].tolist(), sampler_ns[n_sent:].tolist()))
        n_sent, sent_at = len(step_ns), time.perf_counter_ns()

    with without_gc():
        try:
            for index in range(n_gen):
                took_ns, sampled_ns = step(index)
                step_ns.append(took_ns)
                if sampled_ns is not None:
                    sampler_ns.append(sampled_ns)
                if time.perf_counter_ns() - sent_at > _FLUSH_NS:
                    send()
        finally:
            send()
