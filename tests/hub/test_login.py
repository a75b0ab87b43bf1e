"""Where a token of the Hub comes from, which is never read."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ggbench.hub.access import HubLogin, describe_login

SECRET = "hf_" + "x" * 34


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN_PATH", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("HF_HOME", folder)
        Path(folder).chmod(0o755)
        file = Path(folder, "token")
        file.write_text(SECRET)
        file.chmod(0o600)
        yield file


def test_a_token_is_found_and_not_shown(token: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its file, and before that in a variable, as huggingface_hub takes them."""
    in_file = describe_login()
    monkeypatch.setenv("HF_TOKEN", SECRET)
    in_variable = describe_login()

    assert in_file == HubLogin(str(token), False, False, None)
    assert in_variable == HubLogin("HF_TOKEN", False, False, None)


def test_a_token_that_others_can_read_is_exposed(token: Path) -> None:
    token.chmod(0o644)
    assert describe_login().is_exposed is True
    token.parent.chmod(0o700)
    assert describe_login().is_exposed is False
