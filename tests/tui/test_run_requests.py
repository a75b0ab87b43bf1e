"""What a person asks to run, as jobs."""

from pathlib import Path

import pytest

from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.quality.record import QualitySettings
from ggbench.experiments.quality.texts import ARCHIVE, REPO
from ggbench.hub.access import HubAccess
from ggbench.models.reference import parse_model
from ggbench.models.targets import Target, resolve_one
from ggbench.tui.run_requests import NO_BASE, QualityAsked, QualityRequest
from tests.fakes.hub import TestHub
from tests.fakes.scores import without_mark
from tests.fakes.wikitext import TEXT, archive


@pytest.fixture
def target(tiny_twin: Path, tmp_path: Path) -> Target:
    return resolve_one(parse_model(str(without_mark(tiny_twin, tmp_path / "tiny-q8_0.gguf"))))


def _settings(target: Target, text: str) -> QualitySettings:
    request = QualityRequest(QualityAsked(base=NO_BASE, text=text), LlamaConfig(), {})
    (job,) = request.jobs([(target.model, (target,))], HubAccess.from_environment(), None)
    assert isinstance(job.settings, QualitySettings)
    return job.settings


def test_wikitext_2_is_downloaded_and_other_texts_are_files(
    hub: TestHub, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add_repo(REPO, {ARCHIVE: archive()})
    found = _settings(target, "wikitext-2").text
    assert (found.name, found.n_bytes, found.source) == ("wikitext-2", len(TEXT), REPO)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "wikitext-2").write_text("mine")
    assert _settings(target, "~/wikitext-2").text.path == str(tmp_path / "wikitext-2")
    assert _settings(target, "").text.name == "pydoc_data.topics"
