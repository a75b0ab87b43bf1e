"""`transformers:org/name` on the command line, from the local test Hub: planned, inspected, downloaded and measured."""

from pathlib import Path

import pytest

from ggbench.engines.endings import Outcome
from tests.cli.conftest import Run
from tests.fakes.checkpoints import QWEN2_TINY, write_checkpoint
from tests.fakes.hub import TestHub

NAMES = ["config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
NAMES += ["model.safetensors.index.json"]


@pytest.fixture
def repo(hub: TestHub, tmp_path: Path) -> str:
    folder = write_checkpoint(tmp_path / "made", QWEN2_TINY, n_shards=2)
    hub.add_repo("org/tiny", {**{path.name: path for path in folder.iterdir()}, "README.md": b"words"})
    return "transformers:org/tiny"


@pytest.fixture(autouse=True)
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ggbench.engines.transformers.engine.check_packages", lambda method: None)


@pytest.mark.usefixtures("machine")
def test_a_repo_is_planned_pulled_and_measured(ggbench: Run, hub: TestHub, repo: str) -> None:
    plan = ggbench("plan", repo, "bf16", "--vram", "24GiB", "--json").json["rows"][0]
    assert hub.sent_bytes("*.safetensors") == 0
    pulled = ggbench("pull", repo)
    assert pulled.code == 0
    paths = [Path(line) for line in pulled.out.splitlines()]
    assert [path.name for path in paths] == NAMES
    assert "[1/1] org/tiny checkpoint: " in pulled.err and "sha256 verified" in pulled.err
    hub.forget_requests()
    run = ggbench("decode", repo, "-n", "300", "--json").json
    assert not hub.requests
    assert (run["model"], run["quant"], run["outcome"]) == (repo, "bf16", Outcome.COMPLETED)
    assert (run["file"], run["weight_bytes"]) == (str(paths[0].parent), plan["weight_bytes"])
    assert "already on this disk" in ggbench("pull", repo, "--offline").err


@pytest.mark.usefixtures("machine")
def test_a_repo_that_is_not_here_is_downloaded_by_decode(ggbench: Run, repo: str) -> None:
    refused = ggbench("decode", repo, "-n", "300", "--no-download")
    assert refused.code != 0 and "Traceback" not in refused.err
    assert ggbench("decode", repo, "nf4", "-n", "300", "--json").json["quant"] == "nf4"


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["transformers:org/tiny", "nf4"], "a checkpoint is downloaded as it is stored"),
        (["transformers:org/tiny:nf4"], "Hint: omit nf4"),
        (["transformers:."], "transformers:. is a path"),
        (["transformers-twin:qwen1.5-0.5b"], "transformers-twin:qwen1.5-0.5b is a twin"),
    ],
)
def test_what_pull_does_not_take_is_named(ggbench: Run, words: list[str], what: str) -> None:
    ran = ggbench("pull", *words)
    assert ran.code == 2
    assert what in ran.err
