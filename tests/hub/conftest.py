"""Access to the test Hub, with cache folders of this test's own."""

import pytest

from ggbench.hub.access import HubAccess
from tests.fakes.hub import TestHub


@pytest.fixture
def access(hub: TestHub, monkeypatch: pytest.MonkeyPatch) -> HubAccess:
    monkeypatch.setattr("ggbench.hub.api.BACKOFF_S", (0.0, 0.0, 0.0))
    return HubAccess.from_environment()
