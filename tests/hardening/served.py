"""The test Hub and a kept worker for trials outside pytest."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

from ggbench.hub import api, part_file
from ggbench.hub.access import HubAccess
from tests.fakes.hub import TestHub, served
from tests.fakes.kept_worker import KeptEngine, end_kept_workers


@contextmanager
def served_hub() -> Iterator[tuple[TestHub, HubAccess]]:
    """Serve a Hub that HF_ENDPOINT names, with no pause between retries and no wait for a server that is silent."""
    with ExitStack() as stack:
        for module in (api, part_file):
            stack.enter_context(mock.patch.object(module, "BACKOFF_S", (0.0,) * len(module.BACKOFF_S)))
            stack.enter_context(mock.patch.object(module, "READ_TIMEOUT_S", 0.3))
        yield stack.enter_context(served()), HubAccess.from_environment()


@contextmanager
def kept_worker() -> Iterator[None]:
    """Plan by one worker, which is ended."""
    with mock.patch("ggbench.engines.llama.engine.launch", KeptEngine):
        try:
            yield
        finally:
            end_kept_workers()
