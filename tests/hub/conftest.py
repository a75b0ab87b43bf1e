"""What reaches the test Hub, with the cache folders of this test alone."""

from __future__ import annotations

import pytest

from ggbench.hub.access import HubAccess
from tests.fakes.hub import TestHub


@pytest.fixture
def access(hub: TestHub, monkeypatch: pytest.MonkeyPatch) -> HubAccess:
    """The test Hub, by the environment; no pauses between tries."""
    monkeypatch.setattr("ggbench.hub.api.BACKOFF_S", (0.0, 0.0, 0.0))
    return HubAccess.from_environment()
