"""The test Hub for trials outside pytest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ggbench.hub.access import HubAccess
from tests.fakes.hub import TestHub


@contextmanager
def served_hub() -> Iterator[tuple[TestHub, HubAccess]]:
    """Serve a Hub that HF_ENDPOINT names, with no pause between retries and no wait for a server that is silent."""
    from huggingface_hub import close_session
    from huggingface_hub.utils import _detect_agent

    from ggbench.hub import api, part_download, ranges

    patience = [(module, name) for module in (api, part_download, ranges) for name in ("BACKOFF_S", "READ_TIMEOUT_S")]
    before = [(module, name, getattr(module, name)) for module, name in patience if hasattr(module, name)]
    for module, name, value in before:
        setattr(module, name, tuple(0.0 for _ in value) if isinstance(value, tuple) else 0.3)
    _detect_agent._registry = {"standardEnvVars": [], "harnesses": {}}  # else it asks the real Hub for names of agents
    close_session()
    endpoint = os.environ.get("HF_ENDPOINT")
    with TestHub() as hub:
        os.environ["HF_ENDPOINT"] = hub.url
        try:
            yield hub, HubAccess.from_environment()
        finally:
            close_session()
            os.environ.pop("HF_ENDPOINT", None)
            if endpoint is not None:
                os.environ["HF_ENDPOINT"] = endpoint
            for module, name, value in before:
                setattr(module, name, value)
